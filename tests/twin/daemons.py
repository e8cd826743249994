"""The daemons of a twin: started in the foreground, found again, stopped; one twin at a time on a machine."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from hpcddp.core.errors import HpcddpError
from tests.twin.config import munge_socket

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP. A KeyboardInterrupt, as pytest leaves in order on that and takes SystemExit for a failed test."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number


@contextmanager
def ending_signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP raise Ended here, so that `finally` blocks run. Other threads cannot set handlers: no effect there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _raise) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_held() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP arrive only at the end of this block."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *ENDING))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Ended(number)


MARK = "TWIN_FOLDER"
POLL_S = 0.1
ANSWER_S = 60.0
"""How long a daemon may take to answer: only a failing boot on a busy machine comes near it."""

STOP_S = 5.0
"""How long a process gets between SIGTERM and SIGKILL."""


class Daemon:
    """A process in the foreground of its own session, so that Ctrl-C in a terminal does not reach it."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def check(self) -> None:
        """HpcddpError with the end of the log when it has ended."""
        if self.process.poll() is not None:
            raise HpcddpError(f"{self.name} ended with status {self.process.returncode}:\n{self.log_tail()}")

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join([f"{self.log}:", *text.splitlines()[-lines:]])


def wait_until(
    ready: Callable[[], bool], daemons: Sequence[Daemon], what: str, timeout_s: float, show: Callable[[], str] = str
) -> None:
    """Returns once `ready()`; HpcddpError when a daemon ends, with the end of its log, or when time is over, with `show()`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        for daemon in daemons:
            daemon.check()
        if time.monotonic() > deadline:
            raise HpcddpError(f"{what} did not come in {timeout_s:g} s\n{show()}")
        time.sleep(POLL_S)


def wait_for_answer(daemon: Daemon, answers: Callable[[], bool]) -> Daemon:
    """The daemon, once it answers; HpcddpError with the end of its log when it does not."""
    wait_until(answers, [daemon], f"an answer of {daemon.name}", ANSWER_S, daemon.log_tail)
    return daemon


def stop(daemons: Sequence[Daemon]) -> None:
    """SIGTERM to all, SIGKILL to those still there after STOP_S."""
    for daemon in daemons:
        daemon.process.terminate()
    deadline = time.monotonic() + STOP_S
    for daemon in daemons:
        try:
            daemon.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()


def marked(folder: Path) -> list[int]:
    """Ids of the living processes of the twin in `folder`, this one and its parents left out."""
    parents = dict(_parents())
    own = set(_line(os.getpid(), parents))
    with_mark = {pid for pid in parents if _has_mark(pid, folder)} - own
    return sorted(pid for pid in parents if pid not in own and with_mark.intersection(_line(pid, parents)))


def kill_marked(folder: Path) -> None:
    """SIGKILL until none is left: a process may fork while it is being looked for."""
    deadline = time.monotonic() + STOP_S
    while (pids := marked(folder)) and time.monotonic() < deadline:
        for pid in pids:
            _kill(pid)
        time.sleep(POLL_S)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _line(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """`pid`, its parent, and so on up to the first process."""
    while pid in parents:
        yield pid
        pid = parents[pid]


def _parents() -> Iterator[tuple[int, int]]:
    """Every living process and its parent; one that only waits to be reaped is not living."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z":
                yield int(entry.name), int(parent)


def _has_mark(pid: int, folder: Path) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(f"{MARK}={folder}") in variables


LOCK = Path("/tmp/hpcddp-twin.lock")
"""Fixed, as TMPDIR differs between sessions of one machine."""

CONTROLLERS_LOCK = Path("/tmp/hpcddp-controllers.lock")
"""Of controllers, which have no nodes: they may be up beside a twin."""


_up: list[Path] = []
"""Folders of this process's twins: it would wait for itself forever."""


@contextmanager
def only_twin(folder: Path, lock: Path = LOCK) -> Iterator[None]:
    """Waits until no other twin of this lock is up; HpcddpError when any is of this process.

    The lock file names the folder of the last twin: what is left of it, its process having been killed, is killed.
    """
    if _up:
        raise HpcddpError(f"this process has a twin up already, in {_up[0]}: close it first")
    with lock.open("a+", encoding="utf-8") as file:
        _wait_for(file)
        _clean_up_after(file)
        file.write(str(folder))
        file.flush()
        _up.append(folder)
        try:
            yield
        finally:
            _up.remove(folder)
            file.truncate(0)


def _wait_for(file: TextIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"twin: waiting for another twin to go down ({file.name})", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)


def _clean_up_after(file: TextIO) -> None:
    file.seek(0)
    before = file.read().strip()
    if before:
        kill_marked(Path(before))
    file.truncate(0)


PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacctmgr")
MODULES_INIT = Path("/etc/profile.d/modules.sh")
PACKAGES = Path(__file__).parent / "packages.txt"


def missing() -> str | None:
    """Why no twin can run here, or None."""
    if os.geteuid() != 0:
        return "a twin needs root: slurmd starts jobs as their users"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    absent += [] if MODULES_INIT.exists() else [str(MODULES_INIT)]
    return f"not installed: {', '.join(absent)} (apt-get install what {PACKAGES} lists)" if absent else None


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


SITE_OPTIONS = re.compile(r"^#SBATCH --(uenv|view)=.*\n", re.MULTILINE)
"""Options of plug-ins (SPANK) that sites have of their own: CSCS's uenv."""


class Slurm:
    """The one whose slurm.conf is in `folder`; what it starts is marked with the folder `mark`, its own if none is given."""

    def __init__(self, folder: Path, mark: Path | None = None) -> None:
        self.folder, self.mark = folder, mark or folder

    @property
    def env(self) -> dict[str, str]:
        """What to add to the environment, so that Slurm's commands reach it, and the jobs they start belong to it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), MARK: str(self.mark)}

    def run(
        self, command: Sequence[str], *, text: str | None = None, cwd: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs `command` with this Slurm, `text` as its input; HpcddpError with its output when it fails and `check`."""
        done = subprocess.run(
            list(command), env={**os.environ, **self.env}, input=text, cwd=cwd, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise HpcddpError(f"{' '.join(command)} gave {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def test_only(self, script: str) -> tuple[bool, str]:
        """Whether `sbatch --test-only` takes the script, and what it says. SITE_OPTIONS are left out."""
        done = self.run(["sbatch", "--test-only"], text=SITE_OPTIONS.sub("", script), check=False)
        return done.returncode == 0, done.stderr.strip()

    def sacctmgr(self, command: Sequence[str]) -> None:
        """Changes its accounting."""
        self.run(["sacctmgr", "--immediate", "--quiet", *command])
