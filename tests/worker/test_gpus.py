"""Whether a torch build has code for a GPU."""

from __future__ import annotations

import pytest

from hpcddp.worker.gpus import not_covered

TODAY = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_120"]


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0), (12, 1)])
def test_covered(capability: tuple[int, int]) -> None:
    """Binary code runs within its major version from its minor one on, PTX on everything newer."""
    assert not_covered("GPU", capability, TODAY) is None


@pytest.mark.parametrize("capability", [(7, 0), (6, 1), (11, 0)])
def test_not_covered(capability: tuple[int, int]) -> None:
    """A V100 (7.0) with today's wheel: named, with what to install."""
    trouble = not_covered("Tesla V100-SXM2-16GB", capability, TODAY)
    assert trouble is not None
    assert "Tesla V100-SXM2-16GB" in trouble
    assert f"sm_{capability[0]}{capability[1]}" in trouble


def test_a_suffix_binds_to_an_architecture_or_its_family() -> None:
    """Code for sm_90a runs on 9.0 and nowhere else, for sm_120f and compute_120f on 12.0 and 12.1."""
    for family in ("sm_120f", "compute_120f"):
        assert not_covered("GB10", (12, 1), [family]) is None
        assert not_covered("later", (13, 0), [family]) is not None
    assert not_covered("H100", (9, 0), ["sm_90a"]) is None
    assert not_covered("B200", (10, 0), ["sm_90a", "compute_90a"]) is not None
