"""One run on hosts by ssh: sends code and script, starts torchrun on each host, and brings records back until all have ended.

`bootstrap.py --module hpcddp.backends.hosts_run FOLDER STUDY`, started by the runner (local_runner.py), leads a process group.
OpenSSH and rsync do the rest: keys, jump hosts and names are those of the user's ~/.ssh/config. Python 3.10, from the snapshot.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL

from hpcddp.backends import local_queue as queue
from hpcddp.backends.local_ranks import EXIT_FILE, RanksExit
from hpcddp.backends.local_runner import PORTS
from hpcddp.core.bootstrap import PARENT_VARIABLE, die_with_parent, ownership_problem
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_from_dict
from hpcddp.core.launcher import HOST_BUSY, first_failure
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.study_files import name_elsewhere

OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
"""OpenSSH's: a host that is silent for 15 s is lost."""

SHARED = ("ControlMaster=auto", "ControlPersist=600")
"""Of the connection that all others to a host share, and which stays for ten minutes: no key is needed again, and where logins
are limited they are one.
"""

NO_FILE = 23
"""rsync's exit code where a folder is not there: a run that failed early has no records."""

LOST = 255
"""ssh's exit code for a connection that ended."""

EVERY_S = 5.0
"""Between two bytes to each host, and between two looks for new records."""

STOP_S = 20.0
"""In which a host ends its part once it is to; it is lost where it does not."""

START_S = 120.0
"""For a host's shell, modules and Python to start."""

AGAIN_S = 10.0
"""Before a host that another run has is asked again."""


class HostError(HpcddpError):
    """What a host did not do; the message has its name."""


class HostsRun:
    """A run from its first copy to its last record."""

    def __init__(self, study: Study, job: str) -> None:
        self._study, self._job, self._entry = study, job, queue.read_entry(study, job)
        spec = spec_from_dict(self._entry.spec)
        self._who, self._records = f"{study.name}, {self._entry.name}", f"{spec.label}/r{spec.run}/{job}.0"
        self._hosts = self._entry.hosts[: spec.point.layout.nodes]
        self._copy = f".cache/hpcddp/hosts/{name_elsewhere(study)}"  # below the home folder there
        self._processes = list[subprocess.Popen[bytes]]()
        self._terminated = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._terminated = True

    def run(self) -> str | None:
        """Why it failed; None where all hosts came to their end."""
        for host in self._hosts:
            self._send(host)
        while waits := self._start():
            queue.write_job_state(self._study, self._job, "running", waits)
            time.sleep(AGAIN_S * random.uniform(0.5, 1.5))
            if self._terminated:
                return "ended from outside"
        queue.write_job_state(self._study, self._job, "running")
        why = self._watch()
        codes = self._stop()
        for place, host in reversed([*enumerate(self._hosts)]):  # end.json, which the first one has, comes last
            if codes[place] != LOST:
                self._fetch_all(host)
        lost = [host for host, code in zip(self._hosts, codes, strict=True) if code == LOST]
        failed = [
            f"torchrun on {host} failed with exit code {code}" for host, code in zip(self._hosts, codes, strict=True) if code
        ]
        if lost:
            return f"{lost[0]} was lost: ssh had no answer from it, or its connection ended"
        return why or first_failure(self._study.job_dir(self._job)) or next(iter(failed), None)

    def _send(self, host: str) -> None:
        """The snapshot and the job's folder, into the study's copy; nobody else may write there."""
        if why := reach(host):
            raise HostError(f"{host} does not answer: {why}")
        folders = [f"./.code/{self._entry.code}", f"./.jobs/{self._job}/job.sh"]
        command = ["rsync", "-rptR", "--chmod=D700,F600", f"--rsync-path=mkdir -p {self._copy} && rsync", *_shell(), *folders]
        done = subprocess.run(
            [*command, f"{host}:{self._copy}/"], cwd=self._study.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HostError(f"{host}: its copy of the code could not be written: {first_line(done.stderr)}")

    def _start(self) -> str | None:
        """Starts torchrun host by host; whom it waits for where another run has one of them."""
        port, address = random.choice(PORTS), address_of(self._hosts[0])
        self._processes = []
        for rank, host in enumerate(self._hosts):
            given = {
                "PET_NODE_RANK": rank,
                "PET_MASTER_ADDR": address,
                "PET_MASTER_PORT": port,
                "HPCDDP_HOST": host.rpartition("@")[2],
            }
            given |= {"HPCDDP_JOB": self._job, "HPCDDP_WHO": self._who}
            variables = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in given.items())
            command = f"cd {self._copy} && {variables} bash .jobs/{self._job}/job.sh"
            process = subprocess.Popen([*ssh(), host, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._processes.append(process)
            line = self._first_word(process)
            if line != "started":
                codes = self._stop()
                if codes[-1] == HOST_BUSY:
                    return f"waits for {host}: {line.removeprefix('busy: ')} runs there"
                raise HostError(f"{host}: the run did not start there within {START_S:.0f} s. Read batch.err of its job.")
        return None

    def _first_word(self, process: subprocess.Popen[bytes]) -> str:
        """`started` or `busy: ...`, behind what a shell prints; empty where neither comes. Other hosts hear a beat."""
        assert process.stdout is not None
        deadline_s, said, handle = time.monotonic() + START_S, b"", process.stdout.fileno()
        while time.monotonic() < deadline_s:
            self._beat()
            if select.select([handle], [], [], 1.0)[0]:
                more = os.read(handle, 4096)
                said += more
                found = re.search(r"^(started|busy: .*)\n", said.decode(errors="replace"), re.MULTILINE)
                if found or not more:
                    return found[1] if found else ""
        return ""

    def _watch(self) -> str | None:
        """Until one host has failed or all have ended; why the run cannot go on, where that is not a host's doing."""
        deadline_s, fetching, next_s = time.monotonic() + self._entry.walltime_s, list[subprocess.Popen[bytes]](), 0.0
        while any(process.poll() is None for process in self._processes) and not any(each.poll() for each in self._processes):
            now_s = time.monotonic()
            if self._terminated:
                return "ended from outside"
            if now_s >= deadline_s:
                return f"timed out: still running after {self._entry.walltime_s / 60:g} min"
            if now_s >= next_s and all(each.poll() is not None for each in fetching):
                fetching, next_s = [self._fetch(host, "--exclude=end.json") for host in self._hosts], now_s + EVERY_S
            self._beat()
            time.sleep(0.1)
        for each in fetching:
            each.kill()
        return None

    def _beat(self) -> None:
        for process in self._processes:
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.write(b".")
                process.stdin.flush()

    def _stop(self) -> list[int]:
        """Ends what still runs: its stdin closes. The exit codes, LOST where a host does not end its part."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
        deadline_s, codes = time.monotonic() + STOP_S, []
        for process in self._processes:
            try:
                codes.append(process.wait(max(0.1, deadline_s - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(LOST)
        return codes

    def _fetch(self, host: str, *options: str) -> subprocess.Popen[bytes]:
        """Brings what is new of the run's records and logs; links are left where they are."""
        places = [f"{host}:{self._copy}/./{self._records}", f":{self._copy}/./.jobs/{self._job}"]
        command = ["rsync", "-rtR", "--no-links", "--timeout=15", "--exclude=job.sh", "--exclude=.end.*", *options, *_shell()]
        return subprocess.Popen([*command, *places, "."], cwd=self._study.folder, stderr=subprocess.PIPE)

    def _fetch_all(self, host: str) -> None:
        """The last look, as long as bytes come; then nothing of the job is left there. HostError where a host has more."""
        said = b""
        for pause_s in (0.0, 5.0, 20.0):
            time.sleep(pause_s)
            process = self._fetch(host)
            said = process.communicate()[1]
            if process.returncode in (0, NO_FILE):
                remove = f"rm -rf {self._copy}/{self._records} {self._copy}/.jobs/{self._job}"
                subprocess.run([*ssh(), host, remove], capture_output=True, check=False)
                return
        more = f"They are in {self._copy} there"
        raise HostError(f"{host}: the run's records could not be fetched: {first_line(said.decode(errors='replace'))}. {more}.")


@functools.cache
def ssh(*options: str) -> tuple[str, ...]:
    """OpenSSH's command, by the connection that reach() made where it is still there; HostError where others could use that."""
    folder = Path(f"/tmp/hpcddp-{os.getuid()}")  # a socket's path has 104 characters, and homes may be on NFS
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if ownership_problem(folder, trusted=()):
        raise HostError(f"{folder} is not a folder of yours alone. Remove it.")
    chosen = *options, "ControlMaster=no", f"ControlPath={folder}/%C", *OPTIONS
    return "ssh", *(word for option in chosen for word in ("-o", option))


def reach(host: str) -> str | None:
    """Makes the connection that is shared; why there is none."""
    with tempfile.TemporaryFile() as said:  # a pipe would be open for as long as the connection is
        try:
            done = subprocess.run(
                [*ssh(*SHARED), host, "true"], stdin=DEVNULL, stdout=DEVNULL, stderr=said, timeout=START_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"no command ended there within {START_S:.0f} s"
        said.seek(0)
        lines = said.read().decode(errors="replace").split("\n")
    return first_line("\n".join(reversed(lines))) if done.returncode == LOST else None  # ssh's own reason is its last line


def _shell() -> tuple[str, str]:
    return "-e", shlex.join(ssh())


def address_of(host: str) -> str:
    """As ssh reaches it, which its configuration may say."""
    found = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, check=False).stdout
    name = re.search(r"^hostname (\S+)$", found, re.MULTILINE)
    return name[1] if name else host.rpartition("@")[2]


def first_line(text: str) -> str:
    """Of what a program says on stderr but for ssh's warnings: rsync's last line is about its own protocol."""
    lines = (line.strip() for line in text.splitlines())
    return next((line.rstrip(".") for line in lines if line and not line.startswith("Warning: ")), "no reason given")


def main(arguments: Sequence[str]) -> None:
    """Runs the job in the folder given, writes exit.json, and ends the whole process group, itself included."""
    folder, study = Path(arguments[0]), Study(Path(arguments[1]))
    run = HostsRun(study, folder.name)
    die_with_parent(os.environ[PARENT_VARIABLE], signal.SIGTERM)
    try:
        why = run.run()
    except (HostError, OSError) as error:
        why = str(error)
    write_json(folder / EXIT_FILE, encode(RanksExit(why=why)))
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
