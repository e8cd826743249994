"""Rules about how a job script starts its ranks: header, srun and launcher are compared, each launcher by its own rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.core.text import count
from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job, Launch, number

STARTERS = {"srun", "mpirun", "mpiexec", "prun", "aprun", "ibrun", "jsrun", "ssh", "pdsh", "clush", "ray", "submitit"}
"""Programs that reach other nodes."""

SIGNALS = {"10": "USR1", "12": "USR2", "15": "TERM"}
ADDRESSES = {"rdzv_endpoint", "master_addr", "main_process_ip"}


def ranks_and_gpus(job: Job) -> Iterator[Finding]:
    """A launcher for each node, a rank for each GPU, and a GPU for each rank."""
    for launch in _with_arguments(job):
        gpus, ranks, tasks = launch.layout.gpus_per_node, _ranks_per_node(launch), launch.layout.tasks_per_node or 1
        if launch.in_step and launch.starts_ranks and tasks > 1:
            text = f"{tasks} tasks a node each start {launch.kind}, which starts all ranks of a node: `srun --ntasks-per-node=1`"
            if number(launch.arguments.get("nproc_per_node"), launch.layout) != 1:
                yield Finding(launch.line, "launcher-in-every-task", text)
        elif gpus and ranks and ranks > gpus:
            text = f"{count(ranks, 'rank')} and {count(gpus, 'GPU')} on a node: NCCL ends with `Duplicate GPU detected`"
            yield Finding(launch.line, "two-ranks-a-gpu", text)
        elif gpus and ranks and ranks < gpus and launch.starts_ranks:
            text = f"{launch.kind} starts {count(ranks, 'rank')} on a node with {gpus} GPUs: start a rank for each"
            yield Finding(launch.line, "idle-gpus", text)


def _with_arguments(job: Job) -> tuple[Launch, ...]:
    """Launches whose arguments are complete: none where variables like PET_NNODES stand for torchrun's."""
    return () if "PET_" in job.script.code else job.ranks


def _ranks_per_node(launch: Launch) -> int | None:
    given = launch.arguments.get("nproc_per_node")
    if not launch.starts_ranks:
        return launch.layout.tasks_per_node if launch.in_step else None
    if launch.kind == "accelerate":
        total = number(launch.arguments.get("num_processes"), launch.layout)
        machines = launch.layout.nodes if launch.in_step else number(launch.arguments.get("nnodes"), launch.layout)
        return max(1, total // machines) if total and machines else None
    return 1 if given is None and launch.kind == "torchrun" and not launch.is_open else number(given, launch.layout)


def rendezvous(job: Job) -> Iterator[Finding]:
    """As many agents as each waits for, an address at which they meet, and who is which."""
    for launch in _with_arguments(job):
        given, nodes = launch.arguments.get("nnodes"), launch.nodes_of(job.layout)
        expected = 1 if given is None and launch.kind == "torchrun" and not launch.is_open else number(given, launch.layout)
        is_one_a_node = launch.in_step and launch.starts_ranks and launch.layout.tasks_per_node == 1
        if not nodes or not expected or not is_one_a_node:
            continue
        if expected != nodes:
            text = f"{launch.kind} expects {expected} nodes and starts on {nodes}: it hangs, or each node trains for itself"
            yield Finding(launch.line, "nnodes", text)
        elif nodes > 1 and launch.kind != "deepspeed" and (fault := _meets(launch)):
            yield Finding(launch.line, "rendezvous", f"{launch.kind} {fault}")


def _meets(launch: Launch) -> str | None:
    """What is wrong with how agents on several nodes find each other."""
    names = set(launch.arguments)
    if "standalone" in names:
        return "--standalone trains on each node alone: write --rdzv-backend=c10d and --rdzv-endpoint"
    if launch.is_open or "config_file" in names:
        return None
    if not ADDRESSES & names:
        return "has no address, so each node waits at itself: give the name of the first node"
    is_static = "node_rank" not in names and launch.arguments.get("rdzv_backend", "static") == "static"
    return "is rank 0 on every node: give each its number within the step, or --rdzv-backend=c10d" if is_static else None


def tasks_of_the_step(job: Job) -> Iterator[Finding]:
    """What the only step takes of the job's nodes, tasks and cores."""
    steps, job_layout = [launch for launch in job.launches if launch.in_step], job.layout
    for launch in steps:
        mine, is_only = (
            launch.layout,
            len(steps) == 1 and launch.nodes_of(job_layout) == launch.layout.nodes and not launch.is_open,
        )
        if mine.cores and job_layout.cores and mine.cores > job_layout.cores:
            text = f"the step needs {mine.cores} cores of a node, and the job has {job_layout.cores}: srun refuses it"
            yield Finding(launch.line, "srun-cpus", text)
        elif is_only and not launch.in_background and launch.kind != "other" and job_layout.gpus_per_node:
            has_nnodes = number(launch.arguments.get("nnodes"), mine) == job_layout.nodes  # rendezvous says it
            if launch.option("nodes") and mine.nodes and job_layout.nodes and mine.nodes != job_layout.nodes and not has_nnodes:
                text = f"srun starts on {mine.nodes} nodes and the header asks for {job_layout.nodes}: write the same number"
                yield Finding(launch.line, "srun-nodes", text)
            elif (
                not launch.starts_ranks
                and mine.nodes == job_layout.nodes
                and mine.tasks
                and job_layout.tasks
                and mine.tasks != job_layout.tasks
            ):
                text = f"srun starts {mine.tasks} tasks and the header asks for {job_layout.tasks}: write the same number"
                yield Finding(launch.line, "srun-ntasks", text)


def one_node_only(job: Job) -> Iterator[Finding]:
    """The batch script runs on the first node."""
    reaches = STARTERS & set(job.script.code.split()) or "hostfile" in job.script.code
    for launch in job.ranks[-1:] if (job.layout.nodes or 1) > 1 and not reaches else ():
        if not launch.in_step and (launch.starts_ranks or any(word.endswith(".py") for word in launch.words)):
            text = f"no srun: ranks start on the first of {job.layout.nodes} nodes only. Write `srun` in front"
            yield Finding(launch.line, "no-srun", text)


def steps_in_background(job: Job) -> Iterator[Finding]:
    """Slurm ends all that runs when the script ends."""
    waits = [command.line for command in job.script.commands if command.words[0] == "wait"]
    waits += [launch.line for launch in job.launches if not launch.in_background]
    for launch in [launch for launch in job.launches if launch.in_background][-1:]:
        if launch.line > max(waits, default=0):
            text = "the script ends while this runs in the background, which ends the job: write `wait` below"
            yield Finding(launch.line, "no-wait", text)


def signals(job: Job) -> Iterator[Finding]:
    """`--signal=B:` signals the script alone, which hears nothing while a program runs in the foreground."""
    value = job.script.get("signal") or ""
    to_shell, _, rest = value.rpartition(":")
    name = rest.partition("@")[0].removeprefix("SIG")
    words = {f"{prefix}{SIGNALS.get(name, name)}" for prefix in ("", "SIG")}
    trap = next((each.line for each in job.script.commands if each.words[0] == "trap" and words & set(each.words)), None)
    has_exec = re.search(r"^\s*exec\s", job.script.text, re.MULTILINE)
    if "B" in to_shell and trap is None and not has_exec and job.launches:
        line = next(option.line for option in job.script.header if option.name == "signal")
        text = f"--signal={value} signals the script only, which has no `trap` for it: omit `B:`, or trap {name}"
        yield Finding(line, "signal-batch", text)
    elif trap is not None and "B" not in to_shell and value:
        text = f"--signal={value} signals the steps only, so this trap never runs: write --signal=B:{rest}"
        yield Finding(trap, "signal-steps", text)
    elif trap is not None and job.launches and value and not any(launch.in_background for launch in job.launches):
        text = "bash runs a trap only when the program in the foreground has ended: write `srun ... &` and `wait`"
        yield Finding(trap, "trap-waits", text)


LAUNCH_RULES = (ranks_and_gpus, rendezvous, tasks_of_the_step, one_node_only, steps_in_background, signals)
