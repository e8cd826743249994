"""Garbage collection while steps are timed."""

from __future__ import annotations

import contextlib
import gc
from typing import Literal

import pytest

from hpcddp.worker.training.gc_control import collecting

Policy = Literal["python", "frozen", "off"]


class Loop:
    """What only the garbage collector can free."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Loop.freed += 1


def state() -> tuple[bool, int]:
    return gc.isenabled(), gc.get_freeze_count()


@pytest.mark.dear
@pytest.mark.parametrize(("policy", "inside"), [("python", (True, False)), ("frozen", (True, True)), ("off", (False, False))])
def test_policies(policy: Policy, inside: tuple[bool, bool]) -> None:
    """frozen: today's objects are looked at no more. off: nothing is collected. Both begin with nothing left to collect."""
    gc.collect()
    before, freed = state(), Loop.freed
    Loop()
    with collecting(policy):
        assert (gc.isenabled(), gc.get_freeze_count() > before[1]) == inside
        assert policy == "python" or Loop.freed == freed + 1
    assert state() == before


@pytest.mark.parametrize("policy", ["frozen", "off"])
def test_an_error_restores_it_too(policy: Policy) -> None:
    """A failed run's handlers and an evaluation run as usual."""
    before = state()
    with contextlib.suppress(ZeroDivisionError), collecting(policy):
        raise ZeroDivisionError
    assert state() == before


def test_who_has_switched_it_off_keeps_it_off() -> None:
    """A user's own model may have done so."""
    gc.disable()
    try:
        with collecting("off"):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
