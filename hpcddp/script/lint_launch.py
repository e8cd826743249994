"""Rules about how a job script starts its ranks: header, srun and launcher are compared, each launcher by its own rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.core.text import count
from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job, Launch, number

STARTERS = {"srun", "mpirun", "mpiexec", "prun", "aprun", "ibrun", "jsrun", "ssh", "pdsh", "clush", "ray", "submitit"}
"""Programs that reach other nodes."""


def launcher_in_every_task(job: Job) -> Iterator[Finding]:
    """torchrun, accelerate and deepspeed start a node's ranks themselves."""
    for launch in job.ranks:
        per_node, starts = launch.layout.tasks_per_node or 1, number(launch.arguments.get("nproc_per_node"), launch.layout)
        if launch.step is not None and launch.kind != "direct" and per_node > 1 and starts != 1:
            text = (
                f"{per_node} tasks a node each start {launch.kind}, which starts the node's ranks itself: "
                f"use one task a node, `srun --ntasks-per-node=1`"
            )
            yield Finding(launch.line, "launcher-in-every-task", text)


def ranks_and_gpus(job: Job) -> Iterator[Finding]:
    """A rank for each GPU, and a GPU for each rank."""
    for launch in job.ranks:
        gpus, ranks = launch.layout.gpus_per_node, _ranks_per_node(launch)
        is_repeated = launch.kind != "direct" and (launch.layout.tasks_per_node or 1) > 1 and launch.step is not None
        if not gpus or ranks is None or is_repeated:
            continue
        if ranks > gpus:
            text = f"{count(ranks, 'rank')} and {count(gpus, 'GPU')} on a node: NCCL ends with `Duplicate GPU detected`"
            yield Finding(launch.line, "two-ranks-a-gpu", text)
        elif ranks < gpus and launch.kind != "direct":
            text = f"{launch.kind} starts {ranks} of {gpus} ranks on a node, so GPUs stay idle: start a rank for each GPU"
            yield Finding(launch.line, "idle-gpus", text)


def _ranks_per_node(launch: Launch) -> int | None:
    arguments, nodes = launch.arguments, launch.layout.nodes
    if launch.kind == "direct":
        return launch.layout.tasks_per_node if launch.step is not None else None
    if launch.kind == "accelerate":
        total = number(arguments.get("num_processes"), launch.layout)
        machines = nodes if launch.step is not None else number(arguments.get("nnodes"), launch.layout)
        return max(1, total // machines) if total and machines else None
    if "nproc_per_node" not in arguments:
        return 1 if launch.kind == "torchrun" and not launch.is_open else None
    return number(arguments["nproc_per_node"], launch.layout)


def nodes_of_the_launcher(job: Job) -> Iterator[Finding]:
    """As many agents as the launcher waits for."""
    for launch in job.ranks:
        nodes = _nodes(job, launch)
        given = launch.arguments.get("nnodes")
        told = 1 if given is None else number(given.partition(":")[0] if given[:1].isdecimal() else given, launch.layout)
        if (launch.kind != "torchrun" and given is None) or launch.kind == "direct" or launch.step is None:
            continue
        is_elastic, is_task = ":" in (given or ""), (launch.layout.tasks_per_node or 1) > 1
        if nodes and told and told != nodes and not (is_elastic or is_task or (launch.is_open and given is None)):
            name = "--num_machines" if launch.kind == "accelerate" else "--nnodes"
            text = (
                f"{launch.kind} is told {name}={told} and starts on {nodes} nodes: it waits, or trains once a node. Write {nodes}"
            )
            yield Finding(launch.line, "nnodes", text)


def _nodes(job: Job, launch: Launch) -> int | None:
    """Nodes on which the launcher starts; a step for each node is one of as many."""
    is_part = launch.in_background or _given(launch, "nodelist") or _given(launch, "relative")
    return job.layout.nodes if is_part else launch.layout.nodes


def _given(launch: Launch, name: str) -> str | None:
    return launch.step(name) if launch.step is not None else None


def rendezvous(job: Job) -> Iterator[Finding]:
    """Where agents on several nodes meet, and who is which."""
    for launch in job.ranks:
        arguments, told = launch.arguments, number(launch.arguments.get("nnodes"), launch.layout)
        if (_nodes(job, launch) or 1) < 2 or launch.step is None or launch.kind not in ("torchrun", "accelerate") or told == 1:
            continue
        if "standalone" in arguments:
            text = "--standalone on several nodes: each node trains for itself. Give --rdzv-backend=c10d and --rdzv-endpoint"
            yield Finding(launch.line, "rendezvous", text)
        if launch.is_open or "config_file" in arguments or "standalone" in arguments or "PET_" in job.script.code or told is None:
            continue
        if not {"rdzv_endpoint", "master_addr", "main_process_ip"} & set(arguments):
            text = f"{launch.kind} has no address to meet at: each node waits at its own. Give the first node's name"
            yield Finding(launch.line, "rendezvous", text)
        elif "node_rank" not in arguments and arguments.get("rdzv_backend", "static") == "static":
            text = f"every node is rank 0 to {launch.kind}: give each its number within the step, or --rdzv-backend=c10d"
            yield Finding(launch.line, "rendezvous", text)


def tasks_of_the_step(job: Job) -> Iterator[Finding]:
    """What the only step takes of the job's nodes, tasks and cores."""
    launches = [launch for launch in job.launches if launch.step is not None]
    for launch in launches:
        step, whole = launch.layout, job.layout
        cpus, all_cpus = (
            each.cpus_per_task and each.tasks_per_node and each.cpus_per_task * each.tasks_per_node for each in (step, whole)
        )
        if cpus and all_cpus and cpus > all_cpus:
            text = f"the step needs {cpus} cores of a node, and the job has {all_cpus}: srun refuses or waits"
            yield Finding(launch.line, "srun-cpus", text)
            continue
        is_part = len(launches) > 1 or launch.kind == "other" or launch.in_background or _nodes(job, launch) != step.nodes
        if is_part or launch.is_open:
            continue
        for name, what, mine, jobs in (("nodes", "nodes", step.nodes, whole.nodes), ("ntasks", "tasks", step.tasks, whole.tasks)):
            is_said = _given(launch, "nodes") if name == "nodes" else launch.kind == "direct" and step.nodes == whole.nodes
            is_told = name == "nodes" and number(launch.arguments.get("nnodes"), step) == jobs  # nodes_of_the_launcher says it
            if is_said and mine and jobs and mine != jobs and not is_told and (mine > jobs or whole.gpus_per_node):
                text = f"srun asks for {mine} {what} and the header for {jobs}: write the same number"
                yield Finding(launch.line, f"srun-{name}", text)


def one_node_only(job: Job) -> Iterator[Finding]:
    """The batch script runs on the first node."""
    reaches = any(STARTERS & set(command.words) for command in job.script.commands) or "hostfile" in job.script.code
    nodes, outside = job.layout.nodes or 1, [launch for launch in job.ranks if launch.step is None]
    launches = [each for each in outside if each.kind != "direct" or any(word.endswith(".py") for word in each.words)]
    if nodes > 1 and launches and not reaches:
        text = f"no srun: ranks start on the first of {nodes} nodes only. Write `srun` in front"
        yield Finding(launches[-1].line, "no-srun", text)


def steps_in_background(job: Job) -> Iterator[Finding]:
    """Slurm ends all that runs when the script ends."""
    left = [launch for launch in job.launches if launch.in_background]
    waits = [command.line for command in job.script.commands if command.words[0] == "wait"]
    if left and not any(
        line >= left[-1].line for line in (*waits, *(each.line for each in job.launches if not each.in_background))
    ):
        text = "the script ends while this runs in the background, which ends the job: write `wait` below"
        yield Finding(left[-1].line, "no-wait", text)


def signals(job: Job) -> Iterator[Finding]:
    """`--signal=B:` signals the script alone, which hears nothing while a program runs in the foreground."""
    option = next((option for option in job.script.header if option.name == "signal"), None)
    if option is None or not option.value:
        return
    to_shell, _, rest = option.value.rpartition(":")
    name = {"10": "USR1", "12": "USR2", "15": "TERM"}.get(rest.partition("@")[0], rest.partition("@")[0].removeprefix("SIG"))
    traps = [
        each.line
        for each in job.script.commands
        if each.words[0] == "trap" and name in [w.removeprefix("SIG") for w in each.words]
    ]
    has_exec = re.search(r"^\s*exec\s", job.script.text, re.MULTILINE)
    if "B" in to_shell and not traps and not has_exec and job.script.commands:
        text = f"--signal={option.value} signals the script only, which has no `trap` for it: omit `B:`, or trap {name}"
        yield Finding(option.line, "signal-batch", text)
    elif "B" in to_shell and job.launches and not any(launch.in_background for launch in job.launches):
        text = "bash runs a trap only when the program in the foreground has ended: write `srun ... &` and `wait`"
        yield from (Finding(line, "trap-waits", text) for line in traps[:1])
    elif "B" not in to_shell:
        text = f"--signal={option.value} signals the steps only, so this trap never runs: write --signal=B:{rest}"
        yield from (Finding(line, "signal-steps", text) for line in traps[:1])


LAUNCH_RULES = (
    *(launcher_in_every_task, ranks_and_gpus, nodes_of_the_launcher, rendezvous, tasks_of_the_step, one_node_only),
    *(steps_in_background, signals),
)
