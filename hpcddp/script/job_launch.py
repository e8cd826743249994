"""How a job script starts its ranks: each call of a launcher, inside srun or not, with nodes, tasks and GPUs as numbers."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpcddp.script.job_text import LATER, REFERENCE, Command, JobText, read_commands, read_options, split_value
from hpcddp.script.option_table import SRUN

LAUNCHERS = {
    **dict.fromkeys(("torchrun", "torchrun_jsc", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **{"deepspeed": "deepspeed", "accelerate.commands.launch": "accelerate"},
}
"""Programs and modules of Python that start the ranks of a node; and `accelerate launch`."""

NAMES = {"num_machines": "nnodes", "num_nodes": "nnodes", "num_gpus": "nproc_per_node", "machine_rank": "node_rank"}
"""Arguments of accelerate and deepspeed -> torchrun's."""

NO_VALUE = "cpu debug use_env no_local_rank standalone no_python multi_gpu use_deepspeed use_fsdp no_ssh run_path same_network"
SLURM_VARIABLES = {
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "nodes"),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), "tasks"),
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "gpu", "auto"), "gpus_per_node"),
    **{"SLURM_NTASKS_PER_NODE": "tasks_per_node", "SLURM_CPUS_PER_TASK": "cpus_per_task"},
}

GRES = re.compile(r"\bgpu(?::[^:,($]*[^\d:,($][^:,($]*)?(?::(\d+))?(?=[,(]|$)")
"""`gpu`, `gpu:4`, `gpu:a100`, `gpu:a100:4`, `gpu:4(S:0-1)` in --gres, and the number."""

Get = Callable[[str], str | None]
"""An option's value by its name; None where it is not given."""


class Layout(NamedTuple):
    """Of a job or a step; None is not known before the script runs."""

    nodes: int | None = None
    tasks_per_node: int | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None

    @property
    def tasks(self) -> int | None:
        return self.nodes * self.tasks_per_node if self.nodes and self.tasks_per_node else None

    @property
    def cores(self) -> int | None:
        """Of a node."""
        return self.cpus_per_task * self.tasks_per_node if self.cpus_per_task and self.tasks_per_node else None


class Launch(NamedTuple):
    """A call of srun or of a launcher."""

    command: Command
    step: Get | None
    """srun's options; None outside srun."""
    layout: Layout
    """Of the step, or of the job."""
    words: tuple[str, ...]
    """The step's program with its arguments."""
    kind: str
    """`torchrun`, `accelerate`, `deepspeed`, `direct` (Python, a rank for each task) or `other`."""
    arguments: Mapping[str, str]
    """The launcher's, by torchrun's names."""
    is_open: bool
    """It has arguments that only the running script knows."""

    @property
    def line(self) -> int:
        return self.command.line

    @property
    def in_background(self) -> bool:
        return self.command.in_background

    @property
    def in_step(self) -> bool:
        return self.step is not None

    @property
    def starts_ranks(self) -> bool:
        """The launcher starts the ranks of a node; else each task is one."""
        return self.kind not in ("direct", "other")

    @property
    def is_static(self) -> bool:
        """Agents do not choose their numbers."""
        return self.arguments.get("rdzv_backend", "static") == "static"

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
    def ranks_each(self) -> int | None:
        """That one call starts on its node."""
        if self.kind != "accelerate":
            return self.given("nproc_per_node") if self.starts_ranks else 1
        total, machines = self.given("num_processes"), self.layout.nodes if self.in_step else self.given("nnodes")
        return max(1, total // machines) if total and machines else None

    @property
    def ranks(self) -> int | None:
        """Of a node."""
        calls = self.layout.tasks_per_node if self.in_step else int(self.starts_ranks)
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
        known, found, is_open = dict[str, str](), list[Launch](), "PET_" in self.script.code  # torchrun's arguments as variables
        for command in () if self.script.is_heterogeneous else self.script.commands:
            found += _launch(command, _expanded(command.argv, known), self.layout, is_open=is_open)
            for name, value in command.assigned:
                known[name] = f"${name}" if command.is_conditional else expand(value, known)
        return tuple(found)


def expand(text: str, known: Mapping[str, str]) -> str:
    """With the values of variables that the script sets; others stay. In `$((...))` a name needs no `$`."""
    text = REFERENCE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)
    bare = functools.partial(re.sub, r"(?<![\w$])[A-Za-z_]\w*|\s", lambda found: known.get(found[0], found[0].strip()))
    return re.sub(r"\$\(\([^()]*\)\)", lambda found: bare(found[0]), text)


def number(text: str | None, layout: Layout) -> int | None:
    """A count, `$SLURM_NNODES` and the like, or a product of those in `$((...))`; None of anything else."""
    factors = re.sub(rf"[\s\"(){{${LATER}]|(:?-\w+)?}}", "", text or "").split("*")
    values = (int(each) if each.isdecimal() else getattr(layout, SLURM_VARIABLES.get(each, ""), None) for each in factors)
    known: list[int] = [value for value in values if value is not None]
    return math.prod(known) if len(known) == len(factors) else None


def gpu_counts(get: Get, nodes: int | None, tasks_per_node: int | None) -> dict[str, int]:
    """Option -> GPUs of a node that it asks for; without those that are not known."""
    names, gres = ("gpus-per-node", "gpus-per-task", "gpus"), GRES.search(get("gres") or "")
    counts = {name: number((get(name) or "").rpartition(":")[2], Layout()) or 0 for name in names}
    counts["gres"] = int(gres[1] or 1) if gres else 0
    counts["gpus-per-task"] *= tasks_per_node or 0
    counts["gpus"] = counts["gpus"] // nodes if nodes and not counts["gpus"] % nodes else 0
    return {name: count for name, count in counts.items() if count}


def _layout(get: Get, job: Layout | None) -> Layout:
    """As the options say it, else as the job has it; sbatch takes 1 for what nothing says."""
    default = job or Layout(nodes=1, tasks_per_node=1)
    names = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task")
    nodes, tasks, per_node, cpus = (number(get(name), default) for name in names)
    if get("nodes") is None:
        of_tasks = tasks // per_node if tasks and per_node else None
        nodes = 1 if tasks == 1 else default.nodes if job or get("ntasks") is None else of_tasks
    if get("ntasks") is not None:
        per_node = tasks // nodes if tasks and nodes and not tasks % nodes else per_node
    elif get("ntasks-per-node") is None and get("ntasks-per-gpu") is None:
        per_node = default.tasks_per_node
    gpus = min(gpu_counts(get, nodes, per_node).values(), default=default.gpus_per_node)
    return Layout(nodes, per_node, gpus, cpus if cpus is not None else default.cpus_per_task)


def _expanded(words: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """With what variables stand for; a word that is one variable becomes the words of its value."""
    found = list[str]()
    for before, word in zip(("", *words), words, strict=False):
        value, is_split = expand(word, known), REFERENCE.fullmatch(word) and before != "-c"
        found += split_value(value) if value != word and is_split else [value]
    return tuple(found)


def _launch(command: Command, words: tuple[str, ...], job: Layout, *, is_open: bool) -> Iterator[Launch]:
    """Of a command with variables expanded; none of one that starts no ranks."""
    words = tuple(split_value(" ".join(words[1:]))) if words[:1] == ("eval",) else words
    before = len(words) if words[:1] in (("timeout",), ("env",), ("nice",), ("stdbuf",)) else 1
    srun = next((at for at, word in enumerate(words[:before]) if word.rpartition("/")[2] == "srun"), None)
    step, layout = None, job
    if srun is not None:
        options, rest = read_options(words[srun + 1 :], SRUN, command.line)
        values = {option.name: option.value or "" for option in options}
        is_open |= any(REFERENCE.fullmatch(word) for word in words[: len(words) - len(rest)])
        words, step, layout = tuple(rest), values.get, _layout(values.get, job)
    kinds = [found for found in map(_kind, _programs(words)) if found[0] != "other"]
    kind, given = kinds[-1] if kinds else ("other", ())
    if kind != "other" or (step is not None and words[:1] not in (("true",), ("hostname",))):
        arguments, is_cut = _arguments(given, stops=kind != "direct")
        yield Launch(command, step, layout, words, kind, arguments, is_open or is_cut)


def _programs(words: Sequence[str]) -> list[Sequence[str]]:
    """What runs: the words, or the commands of a shell's `-c` among them with its arguments."""
    shells = [at for at, word in enumerate(words) if re.fullmatch(r"(.*/)?(ba|da|z|k)?sh", word)] or [len(words)]
    text = next((at + 1 for at in range(shells[0] + 1, len(words) - 1) if re.fullmatch(r"-[a-z]*c", words[at])), None)
    if text is None:
        return [words]
    rest = words[text + 1 :]
    return [(*each.words, *(rest if any("@" in word for word in each.words) else ())) for each in read_commands(words[text])]


def _kind(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Which launcher the words call, and its arguments."""
    for at, word in enumerate(words):
        name, rest = word.rpartition("/")[2], words[at + 1 :]
        if name in LAUNCHERS:
            return LAUNCHERS[name], rest
        if name == "accelerate" and rest[:1] == ("launch",):
            return "accelerate", rest[1:]
        if re.fullmatch(r"python[\d.]*", name):
            module = next((i for i, each in enumerate(rest) if each in LAUNCHERS and rest[i - 1] == "-m"), None)
            return ("direct", rest) if module is None else (LAUNCHERS[rest[module]], rest[module + 1 :])
    return "other", ()


def _arguments(words: Sequence[str], *, stops: bool) -> tuple[dict[str, str], bool]:
    """`--name value` and `--name=value`, up to the program's name where a launcher stops there; whether that is a variable."""
    found, name = dict[str, str](), ""
    for word in words:
        if word.startswith("-") and not (stops and word in ("-m", "--module")):
            name, equals, value = word.lstrip("-").partition("=")
            name = NAMES.get(name.replace("-", "_"), name.replace("-", "_"))
            found[name] = value
            name = "" if equals or name in NO_VALUE.split() else name
        elif name:
            found[name], name = word, ""
        elif stops:
            return found, REFERENCE.fullmatch(word.removesuffix("[@]}")) is not None or word[:1] in "$" + LATER
    return found, False
