"""The daemons of a twin, each started in the foreground in the twin's folder and returned once it answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from tests.twin.config import munge_socket
from tests.twin.processes import Daemon, wait_for_answer


def database_socket(folder: Path) -> Path:
    """Where the twin's own MariaDB listens."""
    return folder / "database.sock"


def start_munged(folder: Path, env: Mapping[str, str]) -> Daemon:
    """A munged with its own key. --force: it runs as root, in a folder that need not be open to others."""
    key, socket = folder / "munge.key", munge_socket(folder)
    _write_private(key, os.urandom(128))
    files = [f"--key-file={key}", f"--socket={socket}", f"--seed-file={folder}/munge.seed", f"--pid-file={folder}/pid/munged"]
    command = ["munged", "--foreground", "--force", *files, f"--log-file={folder}/log/munged.log"]
    daemon = Daemon("munged", command, env, folder / "log" / "munged.log")
    return wait_for_answer(daemon, socket.exists)


def start_database(folder: Path, env: Mapping[str, str]) -> Daemon:
    """A MariaDB that is reached by its socket only, by root only, and need not survive a power cut.

    Its temporary tables are there too: a MariaDB that starts removes all that it finds in `tmpdir`, other servers' as well.
    """
    data, temporary, log = folder / "database", folder / "database_tmp", folder / "log" / "mariadbd.log"
    temporary.mkdir()
    places = [f"--datadir={data}", f"--tmpdir={temporary}"]
    small = ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync", "--user=root", *places]
    install = ["mariadb-install-db", "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", *small]
    done = subprocess.run(install, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode:
        raise HpcddpError(f"mariadb-install-db failed:\n{done.stdout}{done.stderr}")
    socket = database_socket(folder)
    fast = ["--skip-grant-tables", "--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=off"]
    files = [f"--socket={socket}", f"--pid-file={folder}/pid/mariadbd"]
    daemon = Daemon("mariadbd", ["mariadbd", "--no-defaults", *small, *fast, *files], env, log)
    return wait_for_answer(daemon, socket.exists)


def start_slurmdbd(folder: Path, env: Mapping[str, str], database: Path) -> Daemon:
    """slurmdbd on the MariaDB in the folder `database`."""
    where = {"MYSQL_UNIX_PORT": str(database_socket(database)), "SLURM_CONF": str(folder / "slurm.conf")}
    daemon = Daemon("slurmdbd", ["slurmdbd", "-D"], {**env, **where}, folder / "log" / "slurmdbd.log")
    return wait_for_answer(daemon, lambda: _succeeds(["sacctmgr", "-n", "show", "cluster"], env))


def start_slurmctld(folder: Path, env: Mapping[str, str]) -> Daemon:
    """The controller."""
    daemon = Daemon("slurmctld", ["slurmctld", "-D"], env, folder / "log" / "slurmctld.log")
    return wait_for_answer(daemon, lambda: _succeeds(["scontrol", "ping"], env))


WITH_HOSTS = 'mount --bind "$1" /etc/hosts && exec slurmd -D -N "$2"'
"""In a mount namespace of its own: jobs find the nodes by name, as on a cluster, and this machine's file stays as it is."""


def start_slurmd(folder: Path, env: Mapping[str, str], node: str) -> Daemon:
    """One node; it is up only once slurmctld has heard of it."""
    command = ["unshare", "--mount", "sh", "-c", WITH_HOSTS, "sh", str(folder / "hosts"), node]
    return Daemon(node, command, env, folder / "log" / f"{node}.out")


def _succeeds(command: list[str], env: Mapping[str, str]) -> bool:
    return subprocess.run(command, env=dict(env), capture_output=True, check=False).returncode == 0


def _write_private(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)
