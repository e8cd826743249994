"""One host's part of a run, started by ssh: `bootstrap.py --module hpcddp.worker.host_node FOLDER WHO`, in the study's copy.

It takes the host for the run, starts torchrun, and ends it when the other side goes: that one writes a byte every few seconds, so
that silence is as good as the end of the connection. Its first line says `started`, or who has the host already.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpcddp.core.bootstrap import PARENT_VARIABLE
from hpcddp.core.launcher import HOST_BUSY, LOGS

HERE = Path(__file__).resolve().parents[2]
"""The snapshot."""

SILENT_S = 30.0
"""After so long without a byte the other side is gone."""

GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""


def main() -> None:
    """`FOLDER WHO TORCHRUN_OPTIONS...`: the job's folder, relative to the study's copy, and a name for whoever waits."""
    folder, who, options = Path(sys.argv[1]).absolute(), sys.argv[2], sys.argv[3:]
    held = take_host(who)
    if isinstance(held, str):
        print(f"busy: {held}", flush=True)
        sys.exit(HOST_BUSY)
    print("started", flush=True)
    os.environ.update({"HPCDDP_STUDY": os.getcwd(), LOGS: str(folder), PARENT_VARIABLE: str(os.getpid())})
    bootstrap = str(HERE / "bootstrap.py")
    torchrun = [sys.executable, "-u", bootstrap, "--module", "hpcddp.worker.torchrun", str(folder)]
    process = subprocess.Popen(
        [*torchrun, *options, bootstrap, "--module", "hpcddp.worker"], stdin=subprocess.DEVNULL, start_new_session=True
    )
    heard_s = time.monotonic()
    while process.poll() is None and time.monotonic() - heard_s < SILENT_S:
        if select.select([0], [], [], 0.2)[0]:
            if not os.read(0, 1024):
                break
            heard_s = time.monotonic()
    end_session(process)
    sys.exit(1 if process.wait() else 0)


def take_host(who: str) -> int | str:
    """A handle that holds this user's lock of this host; who holds it where somebody else does."""
    file = Path.home() / ".cache" / "hpcddp" / f"host-{machine()}.lock"  # homes may be shared
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return file.read_text(encoding="utf-8", errors="replace").strip() or "another run"
    os.ftruncate(handle, 0)
    os.write(handle, f"{who}\n".encode())
    return handle


def machine() -> str:
    """This machine since it booted; of containers each."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").partition("-")[0]
    return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends torchrun and all that it started: by SIGTERM, then by SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
