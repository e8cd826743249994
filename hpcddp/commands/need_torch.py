"""What commands on data sets need of this Python."""

from __future__ import annotations


def need_torch() -> None:
    """UsageError where this Python has no torch."""
    from importlib.util import find_spec

    from hpcddp.core.errors import UsageError

    if find_spec("torch") is None:
        raise UsageError(
            "preparing data needs torch, which this Python lacks: use the compute environment's, or `pip install torch`"
        )
