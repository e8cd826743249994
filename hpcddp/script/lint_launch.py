"""Rules about how a job script starts its ranks: header, srun and launcher are compared, each launcher by its own rules.

A rule is a row of the rule's name, whether a launch breaks it, and what is said then; of each function's rows the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.core.text import count
from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job, Launch

Rows = Iterator[tuple[str, object, str]]

STARTERS = {"srun", "mpirun", "mpiexec", "prun", "aprun", "ibrun", "jsrun", "ssh", "pdsh", "clush", "ray", "submitit"}
"""Programs that reach other nodes."""

ADDRESSES = {"rdzv_endpoint", "master_addr", "main_process_ip"}
SIGNALS = {"10": "USR1", "12": "USR2", "15": "TERM"}
IN_STEP = re.compile(r"\$\{?(SLURM_(?:PROCID|LOCALID|NODEID|STEP_ID|STEPID|LAUNCH_NODE_IPADDR))\b")
"""Variables that only a step's tasks have, mostly each its own."""


def launches(job: Job) -> Iterator[Finding]:
    """What is wrong with each."""
    for launch in job.launches:
        for rows in (_ranks_and_gpus, _rendezvous, _of_the_step, _of_the_script, _environment, _words):
            broken = (Finding(launch.line, rule, text) for rule, is_broken, text in rows(launch, job) if is_broken)
            yield from list(broken)[:1]


def _ranks_and_gpus(launch: Launch, job: Job) -> Rows:
    """A launcher for each node, a rank for each GPU, and a GPU for each rank."""
    gpus, ranks, tasks, kind = launch.layout.gpus_per_node or 0, launch.ranks or 0, launch.layout.tasks_per_node or 1, launch.kind
    is_in_each = launch.in_step and launch.starts_ranks and tasks > 1 and launch.ranks_each != 1
    said = f"{tasks} tasks a node each start {kind}, which starts all ranks of a node: `srun --ntasks-per-node=1`"
    yield "launcher-in-every-task", is_in_each, said
    said = f"{count(ranks, 'rank')} and {count(gpus, 'GPU')} on a node: NCCL ends with `Duplicate GPU detected`"
    yield "two-ranks-a-gpu", 0 < gpus < ranks, said
    said = f"{kind} starts {count(ranks, 'rank')} on a node with {gpus} GPUs: start a rank for each"
    yield "idle-gpus", launch.starts_ranks and 0 < ranks < gpus, said


def _rendezvous(launch: Launch, job: Job) -> Rows:
    """As many agents as each waits for, an address at which they meet, and who is which."""
    nodes, expected, names = launch.nodes_of(job.layout), launch.given("nnodes"), set(launch.arguments)
    if not (nodes and expected and launch.in_step and launch.starts_ranks and launch.layout.tasks_per_node == 1):
        return
    text = f"{launch.kind} expects {expected} nodes and starts on {nodes}: it hangs, or each node trains for itself"
    yield "nnodes", expected != nodes, text
    if nodes > 1 and launch.kind != "deepspeed" and not launch.is_open and "config_file" not in names:
        text = "--standalone trains on each node alone: write --rdzv-backend=c10d and --rdzv-endpoint"
        yield "rendezvous", "standalone" in names, text
        text = f"{launch.kind} has no address, so each node waits at itself: give the name of the first node"
        yield "rendezvous", not ADDRESSES & names, text
        text = f"{launch.kind} is rank 0 on every node: give each its number within the step, or --rdzv-backend=c10d"
        yield "rendezvous", launch.is_static and "node_rank" not in names, text


def _of_the_step(launch: Launch, job: Job) -> Rows:
    """What it takes of the job's nodes, tasks and cores."""
    step, header = launch.layout, job.layout
    if launch.in_step and step.cores and header.cores:
        text = f"the step needs {step.cores} cores of a node, and the job has {header.cores}: srun refuses it"
        yield "srun-cpus", step.cores > header.cores, text
    is_only = sum(each.in_step for each in job.launches) == 1 and launch.nodes_of(header) == step.nodes and not launch.is_open
    if launch.in_step and is_only and not launch.in_background and launch.kind != "other" and header.gpus_per_node:
        is_said = launch.given("nnodes") == header.nodes and launch.starts_ranks  # by _rendezvous
        is_other = step.nodes and header.nodes and step.nodes != header.nodes and not is_said
        yield "srun-nodes", is_other, f"srun starts on {step.nodes} nodes, and the header asks for {header.nodes}: write the same"
        is_other = not launch.starts_ranks and step.tasks and header.tasks and step.tasks != header.tasks
        yield "srun-ntasks", is_other, f"srun starts {step.tasks} tasks, and the header asks for {header.tasks}: write the same"


def _of_the_script(launch: Launch, job: Job) -> Rows:
    """The batch script runs on the first node, and Slurm ends all that runs when the script ends."""
    code, last = job.script.code, [each for each in job.launches if each.in_background][-1:]
    starts = launch.starts_ranks or any(word.endswith(".py") for word in launch.words)
    if (job.layout.nodes or 1) > 1 and starts and not STARTERS & set(code.split()) and "hostfile" not in code:
        text = f"no srun: ranks start on the first of {job.layout.nodes} nodes only. Write `srun` in front"
        yield "no-srun", launch == job.launches[-1], text
    waits = [each.line for each in job.launches if not each.in_background]
    waits += [command.line for command in job.script.commands if command.words[0] == "wait"]
    text = "the script ends while this runs in the background, which ends the job: write `wait` below"
    yield "no-wait", last == [launch] and launch.line > max(waits, default=0), text


def _environment(launch: Launch, job: Job) -> Rows:
    """What the tasks of a step receive: sbatch(1) and srun(1), --export."""
    given, resets = launch.option("export"), re.search(r"SLURM_EXPORT_ENV=ALL|unset .*SLURM_EXPORT_ENV", job.script.code)
    value = given if given is not None or not launch.in_step or resets else job.script.get("export")
    place = "srun" if given is not None else "the header, which holds for srun,"
    text = f"--export={value} of {place} takes PATH and all other variables from ranks: write --export=ALL,..."
    yield "export", value is not None and "ALL" not in value.split(","), text


def _words(launch: Launch, job: Job) -> Rows:
    """What the script's shell expands before srun starts a task."""
    unused = None if launch.is_static else launch.arguments.get("node_rank")
    yield from _early([word for word in launch.words if launch.in_step and unused not in (word, word.partition("=")[2])])


def _early(words: list[str]) -> Rows:
    for early in filter(None, map(IN_STEP.search, words)):
        text = f"${early[1]} is expanded before srun starts: every task gets the same. Put it into single quotes, `bash -c '...'`"
        yield "too-early", True, text


def variables_of_ranks(job: Job) -> Iterator[Finding]:
    """Set by the script, while each rank needs its own."""
    reads = any(launch.in_step and launch.kind == "direct" for launch in job.launches)
    for command in job.script.commands if reads else ():
        values = [value for name, value in command.assigned if name in ("RANK", "LOCAL_RANK", "MASTER_ADDR")]
        yield from (Finding(command.line, rule, text) for rule, _, text in _early(values))


def signals(job: Job) -> Iterator[Finding]:
    """`--signal=B:` signals the script alone, which hears nothing while a program runs in the foreground."""
    value = job.script.get("signal")
    if not value or not job.launches:
        return
    to_shell, _, rest = value.rpartition(":")
    name = rest.partition("@")[0].removeprefix("SIG")
    words = {f"{prefix}{SIGNALS.get(name, name)}" for prefix in ("", "SIG")}
    trap = next((each.line for each in job.script.commands if each.words[0] == "trap" and words & set(each.words)), None)
    if trap is None:
        line = next(option.line for option in job.script.header if option.name == "signal")
        text = f"--signal={value} signals the script only, which has no `trap` for it: omit `B:`, or trap {name}"
        if "B" in to_shell and not re.search(r"^\s*exec\s", job.script.text, re.MULTILINE):
            yield Finding(line, "signal-batch", text)
    elif "B" not in to_shell:
        text = f"--signal={value} signals the steps only, so this trap never runs: write --signal=B:{rest}"
        yield Finding(trap, "signal-steps", text)
    elif not any(launch.in_background for launch in job.launches):
        text = "bash runs a trap only when the program in the foreground has ended: write `srun ... &` and `wait`"
        yield Finding(trap, "trap-waits", text)
