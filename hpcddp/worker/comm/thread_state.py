"""Threads that C++ began keep what Python needs in order to run in them."""

from __future__ import annotations

import ctypes
import threading

_enter = ctypes.pythonapi.PyGILState_Ensure


class ThreadStates:
    """Called in a thread that C++ began, it lets this thread keep its Python thread state until the process ends.

    Otherwise every call of Python there makes a thread state and the memory of its frames, and gives both back, which takes
    longer than a communication hook does all in all. Torch does the same for the threads of its autograd engine.
    """

    def __init__(self) -> None:
        self._kept = set[int]()

    def keep(self) -> None:
        thread = threading.get_ident()
        if thread not in self._kept:
            self._kept.add(thread)
            _enter()
