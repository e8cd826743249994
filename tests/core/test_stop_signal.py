"""SIGUSR2 waits until a rank asks for it, and reaches none of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.stop_signal import block_stop_signal, request_requeue, stop_requested
from tests.worker import forked

USR2_THEN_TERM = (signal.SIGUSR2, signal.SIGTERM)
"""In the order of their numbers, in which Linux delivers what waits: who is not ended by the first is ended by the second."""


def spawned() -> int:
    """How a process that a rank starts ends."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    for number in USR2_THEN_TERM:
        child.send_signal(number)
    child.communicate()
    return child.returncode


def forks() -> int:
    """How a process that a rank forks ends, once it has said that SIGTERM ends it: what came before that might pass it by."""
    ready, word = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(word, b".")
        signal.pause()
    os.read(ready, 1)
    for number in USR2_THEN_TERM:
        os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def of_a_rank() -> dict[str, Any]:
    """With a handler that somebody has left behind, and a thread."""
    handled = []
    signal.signal(signal.SIGUSR2, lambda *_: handled.append(1))
    block_stop_signal()
    before = stop_requested()
    found = {"spawned": spawned(), "forked": forks()}
    released = threading.Event()
    thread = threading.Thread(target=released.wait)
    thread.start()
    meanwhile = stop_requested()
    os.kill(os.getpid(), signal.SIGUSR2)
    afterwards = [stop_requested(), stop_requested()]
    released.set()
    thread.join()
    return {**found, "before": before, "meanwhile": meanwhile, "afterwards": afterwards, "handled": len(handled)}


def test_it_is_held_back(tmp_path: Path) -> None:
    """No process or thread of a rank is ended by it, no handler runs; once it has come, it stays."""
    (found,) = forked.values(tmp_path, 1, of_a_rank)
    assert found.pop("spawned") == -signal.SIGTERM
    assert found.pop("forked") == -signal.SIGTERM
    assert found == {"before": False, "meanwhile": False, "afterwards": [True, True], "handled": 0}


def test_word_for_the_batch_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, where the script says that it looks for one."""
    monkeypatch.delenv("HPCDDP_REQUEUE", raising=False)
    assert request_requeue() is False
    monkeypatch.setenv("HPCDDP_REQUEUE", str(tmp_path / "requeue"))
    assert request_requeue() is True
    assert (tmp_path / "requeue").exists()
