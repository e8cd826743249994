"""Rules about how a job script starts its ranks, and what becomes of their exit code."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.shell_text import Option, Script, Srun

SETUP = re.compile(r"(module\s+(load|add|swap|restore)|ml|source|\.|conda\s+activate|micromamba\s+activate)\s")
"""Lines that the ranks cannot do without."""


def no_srun(script: Script) -> Iterator[Finding]:
    """submitit's job side, and torch's ranks, are tasks of a step."""
    if not script.sruns:
        yield Finding(line=1, rule="no-srun", text="no srun: one process starts on the first node, and no rank has its number")


def second_launch(script: Script) -> Iterator[Finding]:
    """One step of ranks a job."""
    for srun in _launches(script)[1:]:
        text = "ranks are started a second time: the records of a run are those of one step; write a job for each"
        yield Finding(line=srun.line, rule="second-srun", text=text)


def tasks_of_the_step(script: Script) -> Iterator[Finding]:
    """As many as the header says, said again: srun's own defaults differ by version."""
    for srun in _launches(script):
        for name in ("--nodes", "--ntasks-per-node"):
            given, wanted = srun.get(name), script.get(name)
            if given is None:
                yield Finding(line=srun.line, rule=f"srun{name[1:]}", text=f"srun without {name}: say it as in the header")
            elif wanted is not None and _differ(given.value, wanted.value):
                text = f"srun {name}={given.value}, and {wanted.value} in the header: some ranks are missing, and the others wait"
                yield Finding(line=srun.line, rule=f"srun{name[1:]}", text=text)
        tasks, parts = srun.get("--ntasks"), (srun.get("--nodes"), srun.get("--ntasks-per-node"))
        if tasks is not None and not _is_product(tasks, *parts):
            text = f"srun --ntasks={tasks.value} beside --ntasks-per-node, which then is a maximum only; leave --ntasks out"
            yield Finding(line=srun.line, rule="srun-ntasks", text=text)


def cpus_of_a_task(script: Script) -> Iterator[Finding]:
    """From 22.05 to 23.02 srun does not read SLURM_CPUS_PER_TASK."""
    if script.get("--cpus-per-task") is None:
        return
    for srun in _launches(script):
        if srun.get("--cpus-per-task") is None:
            text = "srun without --cpus-per-task: srun of Slurm 22.05 to 23.02 gives each rank one CPU; say it as in the header"
            yield Finding(line=srun.line, rule="srun-cpus-per-task", text=text)


def dead_ranks(script: Script) -> Iterator[Finding]:
    """srun(1), --kill-on-bad-exit."""
    for srun in _launches(script):
        option = srun.get("--kill-on-bad-exit")
        if option is None or option.value == "0":
            text = "srun without --kill-on-bad-exit=1: when one rank dies the others wait for it until the time limit"
            yield Finding(line=srun.line, rule="kill-on-bad-exit", text=text)


def binding(script: Script) -> Iterator[Finding]:
    """What newer versions read otherwise."""
    for srun in script.sruns:
        option = srun.get("--cpu-bind")
        if option is not None and option.has_space:
            text = f"srun --cpu-bind {option.value}: Slurm 25.11 reads the next word with it; write --cpu-bind={option.value}"
            yield Finding(line=srun.line, rule="cpu-bind-space", text=text)
        if option is not None and option.value == "rank":
            text = "srun --cpu-bind=rank: Slurm 24.11 has it no more; leave it out, or give masks"
            yield Finding(line=srun.line, rule="cpu-bind-rank", text=text)
        hint = srun.get("--hint") or script.get("--hint")
        if option is not None and hint is not None and hint.value == "nomultithread" and option.value != "none":
            text = "--hint=nomultithread and --cpu-bind exclude each other (srun(1)): leave one out"
            yield Finding(line=srun.line, rule="hint-cpu-bind", text=text)


def hidden_gpus(script: Script) -> Iterator[Finding]:
    """NCCL reaches only GPUs that it sees."""
    for srun in _launches(script):
        option = srun.get("--gpus-per-task") or script.get("--gpus-per-task")
        free = srun.get("--gpu-bind") or script.get("--gpu-bind") or srun.get("--tres-bind")
        if option is not None and free is None:
            text = (
                f"{option.name}: each rank sees one GPU only, and NCCL goes without NVLink; ask for --gpus-per-node, or say "
                f"how ranks are bound (--gpu-bind=none)"
            )
            yield Finding(line=srun.line, rule="gpus-per-task", text=text)


def logs(script: Script) -> Iterator[Finding]:
    """A file for each rank, or none of srun's own."""
    for srun in _launches(script):
        output, error = srun.get("--output"), srun.get("--error")
        if (output is None) != (error is None):
            missing = "--error" if error is None else "--output"
            text = f"srun without {missing} beside the other: half of what ranks say is elsewhere; give both or none"
            yield Finding(line=srun.line, rule="half-logs", text=text)
        for option in (output, error):
            if option is not None and option.value and "%t" not in option.value:
                text = f"srun {option.name}={option.value}: all ranks write one file; put %t, the rank, into the name"
                yield Finding(line=srun.line, rule="shared-log", text=text)


def unchecked_setup(script: Script) -> Iterator[Finding]:
    """A module that is not there would be another Python's torch."""
    if any(re.match(r"set\s+-\w*e", command.text) for command in script.commands):
        return
    for command in script.commands:
        if SETUP.match(command.text) and "||" not in command.unquoted and "&&" not in command.unquoted:
            text = f"`{command.text}` is not checked: where it fails the job goes on without it; add `|| exit 1`"
            yield Finding(line=command.line, rule="unchecked-setup", text=text)


def lost_exit_code(script: Script) -> Iterator[Finding]:
    """The job ends with that of its ranks."""
    commands = script.commands
    for srun in _launches(script):
        at = commands.index(srun.command)
        if at == len(commands) - 1 or re.match(r"(if|while|until|exec|!)\s", srun.command.text) or "||" in srun.command.unquoted:
            continue
        taken = re.match(r"(\w+)=\$\?", commands[at + 1].text)
        if taken is None:
            text = 'the exit code of srun is lost: write `rc=$?` on the next line, and `exit "$rc"` on the last'
            yield Finding(line=srun.line, rule="exit-code", text=text)
        elif not re.match(rf'exit\s+"?\$\{{?{taken[1]}\b', commands[-1].text):
            text = f'the last command is not `exit "${taken[1]}"`: a job whose ranks failed ends as a good one'
            yield Finding(line=commands[-1].line, rule="exit-code", text=text)


def _launches(script: Script) -> list[Srun]:
    """The calls of srun that start ranks, with all that they say."""
    return [srun for srun in script.sruns if srun.starts_ranks and not srun.is_open]


def _differ(given: str | None, wanted: str | None) -> bool:
    return (given or "").isdecimal() and (wanted or "").isdecimal() and given != wanted


def _is_product(*options: Option | None) -> bool:
    """Whether the first is the others multiplied, all of them numbers."""
    values = [(option.value if option else None) or "" for option in options]
    total, *parts = [int(value) if value.isdecimal() else 0 for value in values]
    return total > 0 and total == math.prod(parts)


LAUNCH_RULES = (
    *(no_srun, second_launch, tasks_of_the_step, cpus_of_a_task, dead_ranks, binding, hidden_gpus, logs),
    *(unchecked_setup, lost_exit_code),
)
