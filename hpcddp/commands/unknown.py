"""What `hpcddp submit` says of runs of which nobody knows what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcddp.study.status import RunState


def unknown_words(unknown: Sequence[RunState]) -> str:
    """Which runs, why, and the next step."""
    from hpcddp.core.run_key import run_ranges
    from hpcddp.core.text import count

    runs = run_ranges(state.key for state in unknown)
    what = f"{count(len(unknown), 'run')} {'is' if len(unknown) == 1 else 'are'} unknown and left alone: {runs}"
    return f"{what}: {unknown[0].detail}. Submit again when there is an answer: what is missing then is submitted"


def nothing_words(unknown: Sequence[RunState]) -> str:
    """Where nothing is known to be missing."""
    from hpcddp.core.text import count

    return f"nothing submitted: nobody says what became of {count(len(unknown), 'run')}" if unknown else "nothing to submit"
