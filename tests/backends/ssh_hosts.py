"""Two hosts on this machine: an sshd each, on its own loopback address, in its own namespaces of processes and ~/.cache."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.machine import cannot_run

PORT = 2222
ADDRESSES = {"node1": "127.0.0.2", "node2": "127.0.0.3"}

SSHD = """
Port {port}
ListenAddress {address}
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PidFile none
"""

CLIENT = """
Host {name}
  HostName {address}
  Port {port}
  IdentityFile {folder}/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


@dataclass(frozen=True)
class Hosts:
    """`env` finds an ssh that knows them, by key and client configuration in the folder."""

    folder: Path
    env: Mapping[str, str]
    sshd: Mapping[str, subprocess.Popen[bytes]]
    """Each is the first process of its host."""

    def processes(self, host: str) -> list[int]:
        """All of that host, sshd's own and the runs'."""
        namespace = os.readlink(f"/proc/{self._first(host)}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == namespace:
                    found.append(int(entry.name))
        return found

    def freeze(self, host: str) -> None:
        """It answers nothing any more, and its connections stay."""
        for pid in self.processes(host):
            os.kill(pid, signal.SIGSTOP)

    def kill(self, host: str) -> None:
        """With its first process the kernel ends all others."""
        os.kill(self._first(host), signal.SIGKILL)

    def _first(self, host: str) -> int:
        children = Path(f"/proc/{self.sshd[host].pid}/task/{self.sshd[host].pid}/children").read_text()
        return int(children.split()[0])


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """They are gone in the end."""
    if os.geteuid() or not Path("/usr/sbin/sshd").exists():
        cannot_run("hosts by ssh need root and sshd")
    home = Path(pwd.getpwuid(0).pw_dir)
    (home / ".cache").mkdir(exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    client = "".join(CLIENT.format(name=name, address=address, port=PORT, folder=folder) for name, address in ADDRESSES.items())
    (folder / "client").write_text(client)
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/client "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    sshd = {name: start(folder, name, address, home) for name, address in ADDRESSES.items()}
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    try:
        for name in ADDRESSES:
            wait_until_there(name, env)
        yield Hosts(folder, env, sshd)
    finally:
        for process in sshd.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(folder: Path, name: str, address: str, home: Path) -> subprocess.Popen[bytes]:
    """Its ~/.cache is a folder of its own, and no ~/.bashrc of this machine is run by its shells."""
    (folder / f"cache-{name}").mkdir()
    (folder / f"sshd-{name}").write_text(SSHD.format(port=PORT, address=address, folder=folder))
    (home / ".bashrc").touch()
    mounts = f"mount --bind '{folder}/cache-{name}' '{home}/.cache' && mount --bind /dev/null '{home}/.bashrc'"
    inside = f"{mounts} && exec /usr/sbin/sshd -D -e -f '{folder}/sshd-{name}'"
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def wait_until_there(name: str, env: Mapping[str, str]) -> None:
    deadline_s = time.monotonic() + 20
    command = ["timeout", "5", "ssh", "-o", "BatchMode=yes", name, "true"]
    while subprocess.run(command, env=env, capture_output=True, check=False).returncode:
        if time.monotonic() > deadline_s:
            pytest.fail(f"sshd of {name} did not answer")
        time.sleep(0.2)
