"""A twin goes down on the signals that end a process, and does so undisturbed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP. A KeyboardInterrupt, as pytest leaves in order on that and takes SystemExit for a failed test."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number


@contextmanager
def ending_signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP raise Ended here, so that `finally` blocks run. Other threads cannot set handlers: no effect there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _raise) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_held() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP arrive only at the end of this block."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *ENDING))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Ended(number)
