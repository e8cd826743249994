"""Two that write into one folder do so one after the other."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from pathlib import Path

import pytest

from hpcddp.data.writing import root_lock as module
from hpcddp.data.writing.root_lock import root_lock
from tests.data.writing.kills import started


def hold_for_ever(root: Path) -> None:
    with root_lock(root, print):
        (root / "held").touch()
        time.sleep(600)


def test_the_second_waits_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with the process's number and machine; it goes on when the first is done, or was killed."""
    monkeypatch.setattr(module, "POLL_EVERY_S", 0.01)
    holder = started(hold_for_ever, tmp_path)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    remarks: queue.SimpleQueue[str] = queue.SimpleQueue()
    entered = threading.Event()
    thread = threading.Thread(target=take, args=(tmp_path, remarks, entered))
    thread.start()
    assert f"process {holder} on " in remarks.get(timeout=60)
    assert not entered.wait(0.1)
    os.kill(holder, signal.SIGKILL)
    thread.join(60)
    os.waitpid(holder, 0)
    assert entered.is_set()
    assert remarks.empty()


def take(root: Path, remarks: queue.SimpleQueue[str], entered: threading.Event) -> None:
    with root_lock(root, remarks.put):
        entered.set()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Is an OSError at once; nobody waits for it."""
    with pytest.raises(OSError, match="missing"), root_lock(tmp_path / "missing", print):
        pass
