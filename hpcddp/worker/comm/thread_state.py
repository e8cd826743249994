"""Threads that C++ began keep what Python needs in order to run in them."""

from __future__ import annotations

import ctypes
import threading

_enter = ctypes.pythonapi.PyGILState_Ensure


class ThreadStates:
    """Which threads keep theirs, until the process ends.

    Otherwise every call of Python in a thread that C++ began makes a thread state and the memory of its frames, and gives both
    back, which takes longer than a communication hook does all in all. Torch does so for the threads of its autograd.
    """

    def __init__(self) -> None:
        self._kept = set[int]()

    def keep(self) -> None:
        """The calling thread does."""
        thread = threading.get_ident()
        if thread not in self._kept:
            self._kept.add(thread)
            _enter()
