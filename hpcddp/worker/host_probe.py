"""What a host is, as a line of JSON: `python -c TEXT listen N` on the first one, `python -c TEXT connect ADDRESS PORT` on others.

The text of this file is sent to each host before the first run, where nothing of hpcddp is yet. Standard library, and torch.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

WAIT_S = 30.0
"""For torch to be imported elsewhere."""


def host_facts() -> dict[str, object]:
    """Versions, GPUs and processes on them, which machine it is, what it has for records; None is not known."""
    try:
        import torch

        version, gpus = torch.__version__, torch.cuda.device_count()
    except ImportError:
        version, gpus = None, 0
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").partition("-")[0]
    machine = f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"  # as host_node.py has it
    return {
        **{"python": platform.python_version(), "torch": version, "gpus": gpus, "busy": 0 if _has_run(machine) else _busy()},
        **{"machine": machine, "rsync": shutil.which("rsync") is not None},
        "free_bytes": shutil.disk_usage(Path.home()).free,
    }


def _has_run(machine: str) -> bool:
    """Whether a run of hpcddp has the host. The next one waits for it."""
    try:
        with (Path.home() / ".cache" / "hpcddp" / f"host-{machine}.lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _busy() -> int:
    try:
        query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        return len(subprocess.run(query, capture_output=True, text=True, timeout=WAIT_S, check=False).stdout.split())
    except (OSError, subprocess.TimeoutExpired):
        return 0


def can_connect(address: str, port: int) -> bool:
    """Whether a connection comes about."""
    try:
        socket.create_connection((address, port), timeout=10).close()
    except OSError:
        return False
    return True


def main() -> None:
    """Prints the line; the first host then takes as many connections as there are others."""
    if sys.argv[1] == "connect":
        print(json.dumps({**host_facts(), "reaches": can_connect(sys.argv[2], int(sys.argv[3]))}), flush=True)
        return
    with socket.create_server(("", 0)) as server:
        print(json.dumps({**host_facts(), "port": server.getsockname()[1]}), flush=True)
        server.settimeout(2 * WAIT_S)
        for _ in range(int(sys.argv[2])):
            server.accept()[0].close()


if __name__ == "__main__":
    main()
