"""Rules about the header of a job script: what sbatch reads, and reads otherwise than it was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.shell_text import Option, Script

NEEDED = {
    "--nodes": "sbatch takes 1 for it, and ranks wait for the others until the time limit",
    "--ntasks-per-node": "sbatch takes one task a node for it: one rank",
    "--time": "the partition's default counts, which may be minutes",
    "--open-mode": "a requeued job writes over its logs; write --open-mode=append",
}
"""Option -> what happens without it."""


def no_shebang(script: Script) -> Iterator[Finding]:
    """sbatch takes nothing else for a script."""
    if not script.text.startswith("#!"):
        yield Finding(line=1, rule="shebang", text="the first line is no `#!/bin/bash`: sbatch refuses the script")


def missing_options(script: Script) -> Iterator[Finding]:
    """What a job says of itself rather than leaving it to the site."""
    line = min((option.line for option in script.header), default=1)
    for name, reason in NEEDED.items():
        if script.get(name) is None:
            yield Finding(line=line, rule=f"no{name[1:]}", text=f"no {name} in the header: {reason}")
    mode = script.get("--open-mode")
    if mode is not None and mode.value not in ("append", "a"):
        yield Finding(line=mode.line, rule="no-open-mode", text=f"--open-mode={mode.value}: {NEEDED['--open-mode']}")


def late_options(script: Script) -> Iterator[Finding]:
    """sbatch(1): the header ends at the first command."""
    first = script.commands[0].line if script.commands else None
    for option in script.header:
        if first is not None and option.line > first:
            text = f"#SBATCH {option.name} stands below the first command (line {first}): sbatch does not read it; move it up"
            yield Finding(line=option.line, rule="late-option", text=text)


def empty_options(script: Script) -> Iterator[Finding]:
    """What a template printed of a value that is not there."""
    for option in script.header:
        if option.value in ("None", "False", "null", ""):
            text = f"{option.name}={option.value}: a value that is not there was printed; leave the option out"
            yield Finding(line=option.line, rule="empty-option", text=text)


def repeated_options(script: Script) -> Iterator[Finding]:
    """sbatch takes the last, and a reader the first."""
    known: dict[str, Option] = {}
    for option in script.header:
        if option.name in known:
            text = f"{option.name} is in line {known[option.name].line} already: sbatch takes the last one; leave one out"
            yield Finding(line=option.line, rule="repeated-option", text=text)
        known[option.name] = option


def time_in_minutes(script: Script) -> Iterator[Finding]:
    """submitit compares it as a number when a signal comes."""
    time = script.get("--time")
    if time is not None and time.value and not re.fullmatch(r"\d+", time.value):
        text = f"--time={time.value} is no number of minutes: submitit computes with it when the job is signalled, and fails"
        yield Finding(line=time.line, rule="time-minutes", text=text)


def tasks_twice(script: Script) -> Iterator[Finding]:
    """sbatch(1), --ntasks-per-node."""
    tasks = script.get("--ntasks")
    if tasks is not None and script.get("--ntasks-per-node") is not None:
        text = "--ntasks beside --ntasks-per-node, which then is a maximum only: nodes may have fewer ranks; leave --ntasks out"
        yield Finding(line=tasks.line, rule="ntasks-twice", text=text)


def gpu_requests(script: Script) -> Iterator[Finding]:
    """One request, and not an empty one."""
    requests = [option for option in script.header if _is_gpu(option)]
    for option in requests:
        if re.fullmatch(r"(gpu)?:?|.*:0?|0", option.value or ""):
            text = f"{option.name}={option.value or ''} asks for no GPU: write their number, or leave the option out"
            yield Finding(line=option.line, rule="no-gpus", text=text)
    if len({option.name for option in requests}) > 1:
        names = " and ".join(dict.fromkeys(option.name for option in requests))
        text = f"{names} exclude each other (sbatch(1)): ask for GPUs in one way"
        yield Finding(line=requests[-1].line, rule="gpus-twice", text=text)


def _is_gpu(option: Option) -> bool:
    of_gres = option.name == "--gres" and (option.value or "").startswith("gpu")
    return of_gres or option.name in ("--gpus", "--gpus-per-node", "--gpus-per-task")


def threads_twice(script: Script) -> Iterator[Finding]:
    """sbatch(1), --hint."""
    hint = script.get("--hint")
    other = script.get("--threads-per-core") or script.get("--ntasks-per-core")
    if hint is not None and hint.value == "nomultithread" and other is not None:
        text = f"--hint=nomultithread and {other.name} exclude each other (sbatch(1)): leave one out"
        yield Finding(line=other.line, rule="hint-twice", text=text)


def signal(script: Script) -> Iterator[Finding]:
    """To whom Slurm's warning goes, and whether anybody hears it."""
    option = script.get("--signal")
    if option is None or not option.value:
        return
    to_shell, name = option.value.startswith("B:"), option.value.removeprefix("B:").partition("@")[0]
    if name in ("USR1", "SIGUSR1", "10"):
        text = f"--signal={option.value}: NCCL takes SIGUSR1 for itself; write USR2"
        yield Finding(line=option.line, rule="signal-usr1", text=text)
    has_trap = any(re.match(rf"trap .*\b{re.escape(name)}\b", command.text) for command in script.commands)
    if to_shell and not has_trap:
        text = f"--signal={option.value}: `B:` signals the script only, which has no `trap` for it: the ranks write no checkpoint"
        yield Finding(line=option.line, rule="signal-batch", text=text)


HEADER_RULES = (
    *(no_shebang, missing_options, late_options, empty_options, repeated_options, time_in_minutes),
    *(tasks_twice, gpu_requests, threads_twice, signal),
)
