from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import RENEW_EVERY_S, STALE_S, HeldError, exclusive_lock

NO_FLOCK = (
    "import errno, fcntl, os\n"
    "def no(*a): raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))\n"
    "fcntl.flock = fcntl.lockf = no\n"
)

HOLD = NO_FLOCK + (
    "import pathlib, sys\n"
    "from hpcddp.core.lock import exclusive_lock\n"
    "with exclusive_lock(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)

COUNT = NO_FLOCK + (
    "import contextlib, pathlib, sys\n"
    "from hpcddp.core.lock import HeldError, exclusive_lock\n"
    "lock, total, left = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), 20\n"
    "while left:\n"
    "    with contextlib.suppress(HeldError), exclusive_lock(lock):\n"
    "        total.write_text(str(int(total.read_text()) + 1))\n"
    "        left -= 1\n"
)


def hold(folder: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_second_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = hold(lock)
    with pytest.raises(HeldError, match=f"process {holder.pid} on {socket.gethostname()}"), exclusive_lock(lock):
        pass
    holder.communicate()
    for _ in range(3):
        with exclusive_lock(lock), pytest.raises(HeldError), exclusive_lock(lock):
            pass
    assert len(os.listdir(lock)) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_holder_holds_nothing(tmp_path: Path, how: signal.Signals) -> None:
    holder = hold(tmp_path)
    holder.send_signal(how)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    with exclusive_lock(tmp_path):
        pass
    holder.communicate()


def test_stopped_holder_still_holds(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    holder.send_signal(signal.SIGSTOP)
    try:
        _grow_old(tmp_path)
        with pytest.raises(HeldError), exclusive_lock(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGCONT)
        holder.communicate()


def test_holder_elsewhere_is_judged_by_its_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, should it wake up, sees that it has lost the lock, and does not free the other's."""
    with exclusive_lock(tmp_path) as first:
        first.check()
        monkeypatch.setattr(socket, "gethostname", lambda: "login2")
        with pytest.raises(HeldError), exclusive_lock(tmp_path):
            pass
        _grow_old(tmp_path)
        with exclusive_lock(tmp_path) as second:
            with pytest.raises(HpcddpError, match="another took over"):
                first.check()
            second.check()
            monkeypatch.undo()
    with exclusive_lock(tmp_path):
        pass


def test_sign_of_life_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 3 * RENEW_EVERY_S <= STALE_S
    monkeypatch.setattr("hpcddp.core.lock.RENEW_EVERY_S", 0.01)
    with exclusive_lock(tmp_path) as held:
        _grow_old(tmp_path)
        deadline = time.monotonic() + 60
        while time.time() - held.file.stat().st_mtime > STALE_S:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.dear
def test_many_at_once(tmp_path: Path) -> None:
    total = tmp_path / "total"
    total.write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path / "lock"), str(total)]
    for process in [subprocess.Popen(command) for _ in range(4)]:
        assert process.wait() == 0
    assert total.read_text() == "80"


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), exclusive_lock(tmp_path / "file" / "lock"):
        pass


def _grow_old(folder: Path) -> None:
    for file in folder.iterdir():
        long_ago_s = time.time() - 2 * STALE_S
        os.utime(file, (long_ago_s, long_ago_s))
