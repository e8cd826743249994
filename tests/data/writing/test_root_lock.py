"""Two that write into one folder do so one after the other."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpcddp.data.writing import root_lock as module
from hpcddp.data.writing.root_lock import root_lock

HOLD = (
    "import pathlib, sys\n"
    "from hpcddp.data.writing.root_lock import root_lock\n"
    "with root_lock(pathlib.Path(sys.argv[1]), print):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


def test_the_second_waits_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with the process's number and machine; it goes on when the first is done, or was killed."""
    monkeypatch.setattr(module, "POLL_EVERY_S", 0.01)
    for killed in (False, True):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        remarks: queue.SimpleQueue[str] = queue.SimpleQueue()
        entered = threading.Event()
        thread = threading.Thread(target=take, args=(tmp_path, remarks, entered))
        thread.start()
        assert f"process {holder.pid} on " in remarks.get(timeout=60)
        assert not entered.wait(0.1)
        if killed:
            holder.kill()
        holder.communicate()
        thread.join(60)
        assert entered.is_set()
        assert remarks.empty()


def take(root: Path, remarks: queue.SimpleQueue[str], entered: threading.Event) -> None:
    with root_lock(root, remarks.put):
        entered.set()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Is an OSError at once; nobody waits for it."""
    with pytest.raises(OSError, match="missing"), root_lock(tmp_path / "missing", print):
        pass
