"""A real Slurm on this machine, shaped like a cluster profile: nodes, GPUs, partition, QOS, accounts, modules.

with Twin(load_profile("rcc"), folder) as twin:
    twin.run(["sbatch", "--account=proj", "--partition=gpu", "job.sh"])
    twin.wait_jobs(60)"""

from __future__ import annotations

import os
import pwd
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import each_task
from tests.twin import daemons, rules
from tests.twin.config import check_folder, completions, write_folder, write_modules
from tests.twin.controllers import Controllers
from tests.twin.daemons import Daemon, ending_signals_raise, kill_marked, marked, only_twin, signals_held, stop, wait_until
from tests.twin.rules import site_accounts
from tests.twin.shape import DEFAULT_NODES, Site, make_shape

IDLE_S = 120.0
DOWN_S = 20.0
"""How long cancelled jobs may take to end: KillWait is 5 s."""

NAMELESS = "allocation"
"""The name of a job in sacct until slurmdbd has heard of its start, which may be after its end."""

SACCT_FIELDS = ("JobID", "JobName", "State", "ExitCode", "NodeList", "AllocTRES", "Comment", "End")

SACCT_ALL = ("--starttime=2000-01-01", "--endtime=now+1days", "--state=BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,S,TO")
"""Without states Slurm 22.05 asks when a job became eligible: unknown for seconds, and for ever if cancelled while held."""


class Twin(daemons.Slurm):
    """Up between `with` and its end, also when that is an exception, Ctrl-C, SIGTERM or SIGHUP.

    profile: the cluster it is shaped like; its backend must be slurm.
    folder: made, filled and left behind, without any process; its path must be short and hold no space.
    nodes: at most so many of each node type; None: 17.
    site: accounts, accounting, and what else no profile says.
    python: the interpreter that `python3` is once the profile's modules are loaded.
    """

    def __init__(
        self,
        profile: ClusterProfile,
        folder: Path,
        *,
        nodes: int | None = None,
        site: Site = Site(),  # noqa: B008 - a frozen value
        python: str = sys.executable,
    ) -> None:
        self.profile = profile
        super().__init__(folder.absolute())
        self.python = python
        self.shape = make_shape(profile, self.folder, nodes or DEFAULT_NODES, site)
        self._stack = ExitStack()
        self._daemons: list[Daemon] = []

    @property
    def env(self) -> dict[str, str]:
        """What to add to the environment: Slurm's commands, and the jobs they start, then belong to this twin."""
        return {**super().env, "MODULEPATH": str(self.folder / "modulefiles")}

    def __enter__(self) -> Twin:
        check_folder(self.shape)
        try:
            self._stack.enter_context(ending_signals_raise())
            self._stack.enter_context(only_twin(self.folder))
            self._stack.callback(kill_marked, self.folder)
            self._stack.callback(stop, self._daemons)
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the jobs and takes everything down; does nothing the second time."""
        with signals_held():
            self._stack.close()

    def wait_jobs(self, timeout_s: float) -> None:
        """Returns once no job waits or runs and sacct knows the end of each; HpcddpError with the queue when time is over.

        A node that a test has killed does not end the waiting.
        """
        wait_until(self._all_ended, [], "the end of all jobs", timeout_s, lambda: self._show("squeue"))

    def sacct(self) -> list[dict[str, str]]:
        """The jobs of this twin without their steps, by number: SACCT_FIELDS as sacct writes them. Held jobs are not listed.

        What slurmdbd missed of a job that has ended is slurmctld's own word.
        """
        separator = "\x1f"
        shape = ["-n", "-P", "-X", f"--delimiter={separator}", f"--format={','.join(SACCT_FIELDS)}"]
        lines = self.run(["sacct", "--allusers", *shape, *SACCT_ALL]).stdout.splitlines()
        rows = [dict(zip(SACCT_FIELDS, line.split(separator), strict=True)) for line in lines]
        missed = {row["JobID"] for row in rows if row["End"] == "Unknown" or row["JobName"] == NAMELESS}
        over = completions(self.folder) if missed and (missed := missed - self._queue("--array")) else {}
        return [row | over.get(row["JobID"], {}) if row["JobID"] in missed else row for row in rows]

    def signal_controller(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT freeze and thaw slurmctld; by SIGTERM and SIGKILL it ends, and has ended on return."""
        process = self._controller.process
        process.send_signal(number)
        if number in (signal.SIGTERM, signal.SIGKILL):
            process.wait()

    def start_controller(self) -> None:
        """Starts one in place of one that has ended, on the state that was left."""
        self._daemons.remove(self._controller)
        self._daemons.append(daemons.start_slurmctld(self.folder, {**os.environ, **self.env}))

    def node_processes(self, node: str) -> list[int]:
        """Ids of the living processes of a node, its slurmd's and its jobs': they share its mount namespace."""
        namespace = _namespace(self._daemon(node).process.pid)
        return [pid for pid in self.processes() if _namespace(pid) == namespace]

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL; what the node runs goes on, and nobody starts a slurmd there again."""
        process = self._daemon(node).process
        process.kill()
        process.wait()

    @property
    def _controller(self) -> Daemon:
        return self._daemon("slurmctld")

    def _daemon(self, name: str) -> Daemon:
        return next(daemon for daemon in self._daemons if daemon.name == name)

    def processes(self) -> list[int]:
        """Ids of all living processes of this twin, its jobs' included."""
        return marked(self.folder)

    def _boot(self) -> None:
        write_folder(self.shape)
        write_modules(self.profile.compute, self.folder, self.python)
        env = {**os.environ, **self.env}
        self._daemons.append(daemons.start_munged(self.folder, env))
        if self.shape.site.accounting:
            self._daemons.append(daemons.start_database(self.folder, env))
            self._daemons.append(daemons.start_slurmdbd(self.folder, env, self.folder))
            for command in rules.early_commands(self.profile):
                self.sacctmgr(command)
        self._daemons.append(daemons.start_slurmctld(self.folder, env))
        self._stack.callback(self._cancel_jobs)
        self._daemons += [daemons.start_slurmd(self.folder, env, node.name) for node in self.shape.nodes]
        if self.shape.site.accounting:
            self._write_accounts()
        wait_until(self._all_idle, self._daemons, "idle nodes", IDLE_S, self._why_not_idle)

    def _write_accounts(self) -> None:
        user = pwd.getpwuid(os.getuid()).pw_name
        for command in rules.qos_commands(self.profile):
            self.sacctmgr(command)
        for command in rules.account_commands(self.profile, self.shape.site.accounts, user):
            self.sacctmgr(command)

    def _all_idle(self) -> bool:
        return set(self.run(["sinfo", "-h", "-N", "-o", "%T"], check=False).stdout.split()) == {"idle"}

    def _why_not_idle(self) -> str:
        idle = self._show("sinfo", "-N", "-h", "-o", "%N", "--states=idle").split()
        logs = [daemon.log_tail() for daemon in self._daemons if daemon.name not in idle]
        return "\n".join([self._show("sinfo", "-N"), *logs])

    def _all_ended(self) -> bool:
        """Finished jobs stay in `squeue -t all` for MinJobAge, and reach sacct up to seconds later."""
        live = self._queue()
        if live or not self.shape.site.accounting:
            return not live
        over = (job["JobID"] for job in self.sacct() if job["End"] != "Unknown" and job["JobName"] != NAMELESS)
        ended = {task for job in over for task in each_task(job)}
        return self._queue("--states=all", "--array") <= ended

    def _queue(self, *options: str) -> set[str]:
        """Ids of the jobs that squeue lists."""
        return set(self.run(["squeue", "-h", "-o", "%i", *options]).stdout.split())

    def _show(self, *command: str) -> str:
        return self.run(command, check=False).stdout

    def _cancel_jobs(self) -> None:
        """Jobs end before the daemons, as daemons that end leave the processes of jobs alive."""
        with suppress(HpcddpError):
            if ids := self._queue():
                self.run(["scancel", *ids], check=False)
                wait_until(lambda: not self._queue(), [], "the end of cancelled jobs", DOWN_S)


def _namespace(pid: int) -> str:
    """Nothing of a process that has just ended."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/mnt")
    return ""


class Twins:
    """Keeps the last twin up, as the next test probably asks for the same one.

    new_folder: makes an empty folder from a name.
    """

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self._twin: Twin | None = None
        self._controllers: Controllers | None = None

    def get(self, cluster: str) -> Twin:
        """The twin of that profile, booted now unless it is up; another one goes down before."""
        if self._twin is None or self._twin.profile.name != cluster:
            self.close()
            profile = load_profile(cluster)
            self._twin = Twin(profile, self._new_folder(cluster), site=Site(accounts=site_accounts(profile))).__enter__()
        return self._twin

    def controllers(self) -> Controllers:
        """Controllers of any profiles, without nodes; a twin that is up goes down before."""
        if self._controllers is None:
            self.close()
            self._controllers = Controllers(self._new_folder("controllers")).__enter__()
        return self._controllers

    def close(self) -> None:
        """Takes down what is up, if anything."""
        up, self._twin, self._controllers = self._twin or self._controllers, None, None
        if up is not None:
            up.close()
