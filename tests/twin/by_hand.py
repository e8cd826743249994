"""A Slurm whose slurm.conf and gres.conf are texts written by hand, apart from any profile and from tests/twin/config.py.

Its nodes are those of a cloud that nobody starts: the controller lists them and judges requests for them.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from tests.twin import daemons
from tests.twin.config import FOLDERS, NULL_DEVICE
from tests.twin.daemons import MARK, Daemon, ending_signals_raise, kill_marked, only_twin, stop
from tests.twin.shape import free_ports

GPUS = 8
"""Device files for gres.conf: {folder}/dev/gpu0 and so on."""

COMMON = """
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
EnforcePartLimits=ALL
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3600
"""
"""What every slurm.conf here begins with."""

SLURMDBD = """AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
PidFile={folder}/pid/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_by_hand
"""


class HandMade:
    """Its environment, and what to run in it."""

    def __init__(self, folder: Path) -> None:
        self.env = {"SLURM_CONF": str(folder / "slurm.conf"), MARK: str(folder)}

    def run(self, *command: str) -> None:
        """HpcddpError with the output where it fails."""
        done = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HpcddpError(f"{' '.join(command)} gave {done.returncode}:\n{done.stdout}{done.stderr}")

    def test_only(self, script: str) -> tuple[bool, str]:
        """Whether `sbatch --test-only` takes the script, and what it says."""
        done = subprocess.run(
            ["sbatch", "--test-only"], env={**os.environ, **self.env}, input=script, capture_output=True, text=True, check=False
        )
        return done.returncode == 0, done.stderr.strip()


@contextmanager
def slurm_by_hand(
    folder: Path, slurm_conf: str, gres_conf: str, qos: Sequence[str] = (), accounts: Sequence[str] = ()
) -> Iterator[HandMade]:
    """Up until the end of the block. In the texts {folder}, {host}, {port} and {dbd_port} are filled in.

    qos, accounts: commands of sacctmgr, before slurmctld starts and after; without any there is no slurmdbd.
    """
    slurm, started = HandMade(folder), list[Daemon]()
    with ExitStack() as stack:
        stack.enter_context(ending_signals_raise())
        stack.enter_context(only_twin(folder))
        stack.callback(kill_marked, folder)
        stack.callback(stop, started)
        _write(folder, slurm_conf, gres_conf)
        env = {**os.environ, **slurm.env}
        started.append(daemons.start_munged(folder, env))
        if qos or accounts:
            started.append(daemons.start_database(folder, env))
            started.append(daemons.start_slurmdbd(folder, env, folder))
        for command in qos:
            slurm.run("sacctmgr", "--immediate", "--quiet", *command.split())
        started.append(daemons.start_slurmctld(folder, env))
        for command in accounts:
            slurm.run("sacctmgr", "--immediate", "--quiet", *command.split())
        yield slurm


def _write(folder: Path, slurm_conf: str, gres_conf: str) -> None:
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(GPUS):
        os.mknod(folder / "dev" / f"gpu{index}", stat.S_IFCHR | 0o600, NULL_DEVICE)
    port, dbd_port = free_ports(2)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurmdbd.conf").touch(mode=0o600)
    for name, text in {"slurm.conf": slurm_conf, "gres.conf": gres_conf, "slurmdbd.conf": SLURMDBD}.items():
        filled = text.format(folder=folder, host=host, port=port, dbd_port=dbd_port)
        (folder / name).write_text(filled, encoding="utf-8")
