"""How a job script starts its ranks: each call of a launcher, inside srun or not, with nodes, tasks and GPUs as numbers."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.script.job_text import LATER, REFERENCE, Command, JobText, read_commands, read_options, split_value
from hpcddp.script.option_table import SRUN

MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}
NAMES = {"num_machines": "nnodes", "num_nodes": "nnodes", "num_gpus": "nproc_per_node", "machine_rank": "node_rank"}
"""Arguments of accelerate and deepspeed -> torchrun's."""

ARITHMETIC = re.compile(r"\$\(\([^()]*\)\)")
WRAPPERS = ("timeout", "env", "nice", "stdbuf")
NO_VALUE = "cpu debug use_env no_local_rank standalone no_python multi_gpu use_deepspeed use_fsdp no_ssh run_path same_network"
SLURM_VARIABLES = {
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "nodes"),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), "tasks"),
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "gpu", "auto"), "gpus_per_node"),
    **{"SLURM_NTASKS_PER_NODE": "tasks_per_node", "SLURM_CPUS_PER_TASK": "cpus_per_task"},
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Of a job or a step; None is not known before the script runs."""

    nodes: int | None
    tasks_per_node: int | None
    gpus_per_node: int | None
    cpus_per_task: int | None

    @property
    def tasks(self) -> int | None:
        return self.nodes * self.tasks_per_node if self.nodes and self.tasks_per_node else None

    @property
    def cores(self) -> int | None:
        """Of a node."""
        return self.cpus_per_task * self.tasks_per_node if self.cpus_per_task and self.tasks_per_node else None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A call of srun or of a launcher."""

    line: int
    kind: str
    """`torchrun`, `accelerate`, `deepspeed`, `direct` (Python, a rank for each task) or `other`."""
    step: Callable[[str], str | None] | None
    """srun's options by name; None outside srun."""
    layout: Layout
    """Of the step, or of the job."""
    words: tuple[str, ...]
    """The step's program with its arguments."""
    arguments: Mapping[str, str]
    """The launcher's, by torchrun's names."""
    is_open: bool
    """It has arguments that only the running script knows."""
    in_background: bool

    @property
    def in_step(self) -> bool:
        return self.step is not None

    @property
    def starts_ranks(self) -> bool:
        """The launcher starts the ranks of a node; else each task is one."""
        return self.kind not in ("direct", "other")

    def option(self, name: str) -> str | None:
        return self.step(name) if self.step is not None else None

    def nodes_of(self, job: Layout) -> int | None:
        """Nodes on which the launcher starts; a step for each node is one of as many."""
        is_part = self.in_background or self.option("nodelist") or self.option("relative")
        return job.nodes if is_part else self.layout.nodes

    def given(self, name: str) -> int | None:
        """An argument's number; torchrun takes 1 for what nothing says."""
        is_one = name not in self.arguments and self.kind == "torchrun" and not self.is_open
        return 1 if is_one else number(self.arguments.get(name), self.layout)

    @property
    def nodes_expected(self) -> int | None:
        return self.given("nnodes")

    @property
    def is_static(self) -> bool:
        """Agents do not choose their numbers."""
        return self.arguments.get("rdzv_backend", "static") == "static"

    @property
    def ranks_each(self) -> int | None:
        """That one call starts on its node."""
        if self.kind != "accelerate":
            return self.given("nproc_per_node") if self.starts_ranks else 1
        total, machines = self.given("num_processes"), self.layout.nodes if self.in_step else self.given("nnodes")
        return max(1, total // machines) if total and machines else None

    @property
    def ranks(self) -> int | None:
        """Of a node."""
        calls = self.layout.tasks_per_node if self.in_step else 1 if self.starts_ranks else None
        return calls * self.ranks_each if calls and self.ranks_each and self.kind != "other" else None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A script with all that its rules compare."""

    script: JobText

    @functools.cached_property
    def layout(self) -> Layout:
        return _layout(self.script.get, None)

    @functools.cached_property
    def launches(self) -> tuple[Launch, ...]:
        known, found = dict[str, str](), list[Launch]()
        for command in () if self.script.is_heterogeneous else self.script.commands:
            found += _launch(command, _expanded(command.argv, known), self.layout, is_open="PET_" in self.script.code)
            for name, value in command.assigned:
                known[name] = f"${name}" if command.is_conditional else expand(value, known)
        return tuple(found)


def expand(text: str, known: Mapping[str, str]) -> str:
    """With the values of variables that the script sets; others stay."""
    text = REFERENCE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)
    return ARITHMETIC.sub(lambda found: _bare_names(found[0], known), text)


def _bare_names(arithmetic: str, known: Mapping[str, str]) -> str:
    """In `$((...))` a name needs no `$`; without spaces it stays one word."""
    text = re.sub(r"(?<![\w$])[A-Za-z_]\w*", lambda found: known.get(found[0], found[0]), arithmetic)
    return re.sub(r"\s", "", text)


def number(text: str | None, layout: Layout) -> int | None:
    """A count, `$SLURM_NNODES` and the like, or a product of those in `$((...))`; None of anything else."""
    text = re.sub(r"[\s\"()$]", "", (text or "").replace(LATER, "$").replace("((", "").replace("))", ""))
    factors = [re.sub(r"^\{(\w+)(:?-\w+)?\}$", r"\1", factor) for factor in text.split("*")]
    values = [int(each) if each.isdecimal() else getattr(layout, SLURM_VARIABLES.get(each, ""), None) for each in factors]
    return functools.reduce(lambda a, b: a * b if a is not None and b is not None else None, values)


def gpu_counts(get: Callable[[str], str | None], nodes: int | None, tasks_per_node: int | None) -> dict[str, int | None]:
    """Option -> GPUs of a node that it asks for."""
    gres = next((each for each in (get("gres") or "").split(",") if re.match(r"(gres[:/])?gpu\b", each)), None)
    given = {"gres": gres, **{name: get(name) for name in ("gpus-per-node", "gpus-per-task", "gpus")}}
    counts = {name: (value or "").rpartition(":")[2] for name, value in given.items() if value is not None}
    requested: dict[str, int | None] = {name: int(count) for name, count in counts.items() if count.isdecimal()}
    if gres is not None:
        requested.setdefault("gres", 1)
    if (of_job := requested.get("gpus")) is not None:
        requested["gpus"] = of_job // nodes if nodes and not of_job % nodes else None
    if (of_task := requested.get("gpus-per-task")) is not None:
        requested["gpus-per-task"] = of_task * tasks_per_node if tasks_per_node else None
    return requested


def _layout(get: Callable[[str], str | None], job: Layout | None) -> Layout:
    """As the options say it, else as the job has it; sbatch takes 1 for what nothing says."""
    empty = job or Layout(nodes=None, tasks_per_node=None, gpus_per_node=None, cpus_per_task=None)
    nodes, tasks, per_node = (number(get(name), empty) for name in ("nodes", "ntasks", "ntasks-per-node"))
    has_nodes, has_tasks = get("nodes") is not None, get("ntasks") is not None
    if not has_nodes:
        nodes = 1 if tasks == 1 or (job is None and not has_tasks) else job.nodes if job else None
        nodes = tasks // per_node if tasks and per_node and job is None else nodes
    if has_tasks:
        per_node = tasks // nodes if tasks and nodes and not tasks % nodes else per_node
    elif get("ntasks-per-node") is None:
        per_node = job.tasks_per_node if job else None if get("ntasks-per-gpu") is not None else 1
    counts = {count for count in gpu_counts(get, nodes, per_node).values() if count is not None}
    cpus = number(get("cpus-per-task"), empty)
    return Layout(
        nodes=nodes,
        tasks_per_node=per_node,
        gpus_per_node=min(counts) if counts else empty.gpus_per_node,
        cpus_per_task=cpus if cpus is not None else empty.cpus_per_task,
    )


def _expanded(words: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """With what variables stand for; a word that is one variable becomes the words of its value."""
    found = list[str]()
    for before, word in zip(("", *words), words, strict=False):
        value, is_split = expand(word, known), REFERENCE.fullmatch(word) and before != "-c"
        found += split_value(value) if value != word and is_split else [value]
    return tuple(found)


def _launch(command: Command, words: tuple[str, ...], job: Layout, *, is_open: bool) -> Iterator[Launch]:
    """Of a command with variables expanded; none of one that starts no ranks. `is_open`: variables stand for arguments."""
    words = tuple(split_value(" ".join(words[1:]))) if words[:1] == ("eval",) else words
    before = len(words) if words and words[0] in WRAPPERS else 1
    srun = next((at for at, word in enumerate(words[:before]) if re.fullmatch(r"(/.*/)?srun", word)), None)
    step, layout = None, job
    if srun is not None:
        options, rest = read_options(words[srun + 1 :], SRUN, command.line)
        values = {option.name: option.value or "" for option in options}
        is_open |= any(REFERENCE.fullmatch(word) for word in words[: len(words) - len(rest)])
        words, step, layout = tuple(rest), values.get, _layout(values.get, job)
    programs = [program for program in _programs(words) if _kind(program)[0] != "other"]
    kind, given = _kind(programs[-1]) if programs else ("other", ())
    if kind == "other" and (step is None or words[:1] in (("true",), ("hostname",))):
        return
    arguments, is_cut = _arguments(given, stops=kind != "direct")
    yield Launch(
        line=command.line,
        kind=kind,
        step=step,
        layout=layout,
        words=words,
        arguments=arguments,
        is_open=is_open or is_cut,
        in_background=command.in_background,
    )


def _programs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What runs: the words, or the commands of a shell's `-c` among them with its arguments."""
    is_shell = [re.fullmatch(r"(/.*/)?(ba|da|z|k)?sh", word) is not None for word in words]
    text = next((at for at in range(2, len(words)) if re.match(r"-[a-z]*c$", words[at - 1]) and any(is_shell[:at])), None)
    if text is None:
        yield tuple(words)
        return
    for command in read_commands(words[text].split("\n")):
        rest = words[text + 1 :] if any("@" in word for word in command.words) else ()
        yield (*command.words, *rest)


def _kind(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Which launcher the words call, and its arguments."""
    for at, word in enumerate(words):
        name, rest = word.rpartition("/")[2], words[at + 1 :]
        if re.match(r"torchrun(_\w+)?$|deepspeed$", name):
            return name.partition("_")[0], rest
        if name == "accelerate" and rest[:1] == ("launch",):
            return "accelerate", rest[1:]
        if re.fullmatch(r"python[\d.]*", name):
            module = next((rest[i + 1] for i, each in enumerate(rest[:-1]) if each == "-m" and _are_flags(rest[:i])), "")
            return MODULES.get(module, "direct"), rest[rest.index(module) + 1 :] if module in MODULES else rest
    return "other", ()


def _are_flags(words: Sequence[str]) -> bool:
    return all(word.startswith("-") for word in words)


def _arguments(words: Sequence[str], *, stops: bool) -> tuple[dict[str, str], bool]:
    """`--name value` and `--name=value`, up to the program's name where a launcher stops there."""
    found, at = dict[str, str](), 0
    while at < len(words):
        word, at = words[at], at + 1
        if stops and (not word.startswith("-") or word in ("-m", "--module")):
            return found, REFERENCE.fullmatch(word.removesuffix("[@]}")) is not None or word[:1] in "$" + LATER
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word.startswith("-"):
            if not equals and name not in NO_VALUE.split() and at < len(words) and not words[at].startswith("--"):
                value, at = words[at], at + 1
            found[NAMES.get(name, name)] = value
    return found, False
