"""A job script as `hpcddp lint` compares it: sbatch's header, the shell's commands, and how they start ranks.

What a condition decides, what a here-document writes and what another file contains is not read.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import NamedTuple

from hpcddp.script.option_table import ALIASES, SBATCH, SHORT, SRUN

LATER, QUOTED, CONTINUED = "\ue000", "\ue001", "\r"
"""A `$` that another shell expands (in single quotes, or behind a backslash), one in double quotes, and a line's continuation."""

_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*+\))*+\)"
_EXPANDED = rf"[${LATER}](?:{_NESTED}|\{{(?:[^{{}}]|\{{[^{{}}]*\}})*+\}})|`[^`]*`"
PIECE = re.compile(rf"(?<!\S)#[^\n]*|'[^']*'|\"(?:\\.|{_EXPANDED}|[^\"\\])*+\"|{_EXPANDED}|(?<==){_NESTED}|\\.|[\"']", re.DOTALL)
"""What `shlex` does not know or would split: comments, quoted text, `$(...)`, an array's `=(...)`, an escaped character."""

HIDDEN = {ord(each): 0xE100 + ord(each) for each in " \t\n;&|()<>\"'\\`"}
SHOWN = {hidden: plain for plain, hidden in HIDDEN.items()} | {ord(QUOTED): ord("$")}
SPLIT = re.compile(r"\$\{\w+\}|\"?\$\{\w+\[[@*]\]\}\"?")
REFERENCE = re.compile(rf"([${LATER}{QUOTED}])(?:(\w+)|\{{(\w+)(?:\[[@*]\])?\}})")
HERE = re.compile(r"(?<!<)<<-?[ \t]*\\?[\"']?(\w+)[\"']?([^\n]*)\n.*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
BLOCKS = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done"}
BEFORE = ("then", "else", "elif", "do", "!", "{", "}", "time", "exec", "nohup", "env", "export", "declare", "readonly", "local")
KEYWORDS = {*BLOCKS, *BLOCKS.values(), *BEFORE}

KINDS = {
    **dict.fromkeys(("torchrun", "torchrun_jsc", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("accelerate", "accelerate-launch", "accelerate.commands.launch"), "accelerate"),
    **{"deepspeed": "deepspeed", "python": "python", "python3": "python"},
}
"""Programs, and modules of Python -> the kind of a launch: all but Python start the ranks of a node."""

NAMES = {"num_machines": "nnodes", "num_nodes": "nnodes", "num_gpus": "nproc_per_node", "machine_rank": "node_rank"}
"""Arguments of accelerate and deepspeed -> torchrun's."""

SLURM_VARIABLES = {
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "nodes"),
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "gpu", "auto"), "gpus"),
    **{"SLURM_NTASKS_PER_NODE": "tasks", "SLURM_CPUS_PER_TASK": "cpus"},
}
FACTOR = re.compile(rf"(\d+)|[${LATER}]?\{{?([A-Za-z_]\w*)(?::?-\w+)?\}}?")
GRES = re.compile(r"\bgpu(?::[^:,($]*[^\d:,($][^:,($]*)?(?::(\d+))?(?=[,(]|$)")
"""`gpu`, `gpu:4`, `gpu:a100`, `gpu:a100:4`, `gpu:4(S:0-1)` in --gres, and the number."""


class Command(NamedTuple):
    """A simple command without quotes, redirections and keywords; variables that the script sets are their values."""

    words: list[str]
    line: int
    assigned: dict[str, str]
    in_background: bool
    is_conditional: bool


class Layout(NamedTuple):
    """Of a job or a step; None is not known before the script runs. Tasks and GPUs are those of a node, CPUs of a task."""

    nodes: int | None = None
    tasks: int | None = None
    gpus: int | None = None
    cpus: int | None = None


class Launch(NamedTuple):
    """A call of srun with its `options`, or of a launcher by itself, and the `words` that a task runs.

    `arguments` are the launcher's by torchrun's names; the empty name stands for some that only the running script knows.
    It is told `nnodes`, and each call starts `ranks` on its node.
    """

    command: Command
    in_step: bool
    options: Mapping[str, str]
    layout: Layout
    words: Sequence[str]
    kind: str | None
    arguments: Mapping[str, str]
    nnodes: int | None
    ranks: int | None


class Job(NamedTuple):
    """A whole script: `lines` without here-documents, the line of the first command, options and other words of `#SBATCH` lines.

    `settings` are line, name in capitals and value of variables and arguments that hold in any case.
    """

    text: str
    lines: list[str]
    end: int
    directives: dict[int, tuple[dict[str, str], list[str]]]
    header: dict[str, str]
    layout: Layout
    commands: list[Command]
    launches: list[Launch]
    settings: list[tuple[int, str, str]]


def read_job(text: str) -> Job:
    """As sbatch and the shell read it; of one in another language the header."""
    lines = HERE.sub(lambda found: found[2] + "\n" * found[0].count("\n"), text.replace("\r", "") + "\n").split("\n")
    end = next((at for at, line in enumerate(lines, start=1) if re.match(r"[ \t\ufeff]*[^#\s\ufeff]", line)), len(lines) + 1)
    directives, header = dict[int, tuple[dict[str, str], list[str]]](), dict[str, str]()
    for at, line in enumerate(lines, start=1):
        if line.startswith("#SBATCH"):
            words = re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", re.sub(r"\s#.*", "", line[7:]))
            directives[at] = read_options([re.sub("[\"']", "", word) for word in words], SBATCH)
            header |= directives[at][0] if at < end else {}
    is_heterogeneous = any(rest[:1] in (["hetjob"], ["packjob"]) for _, rest in directives.values())
    layout = Layout() if is_heterogeneous else _layout(header, None)
    commands = list(read_commands("\n".join(lines))) if re.match(r"#!.*\b(ba|da|k|z)?sh\b", text) else []
    launches = [launch for command in commands if (launch := _launch(command, layout, has_more="PET_" in text))]
    settings = [(each.line, *pair) for each in commands if not each.is_conditional for pair in each.assigned.items()]
    settings += [setting for launch in launches if not launch.command.is_conditional for setting in _settings(launch)]
    return Job(text, lines, end, directives, header, layout, commands, launches, settings)


def read_options(words: Sequence[str], table: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Long names and values of options that the words begin with, and the words behind them. An abbreviation is read as getopt
    does it; an option that the command does not have keeps its dashes.
    """
    found, rest = dict[str, str](), list(words)
    while rest and re.match(r"--?[^-]", rest[0]):
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            longer = [each for each in table if each == name[2:]] or [each for each in table if each.startswith(name[2:])]
            name = longer[0] if len(longer) == 1 else name
        elif name[1:] not in table:  # else it is -nodes=2
            name, value = SHORT.get(name[1], word), word[2:].removeprefix("=")
            equals = value
        found[ALIASES.get(name, name)] = rest.pop(0) if table.get(name) == "value" and not equals and rest else value
    return found, rest


def read_commands(text: str) -> Iterator[Command]:
    """The commands of a shell's text. What a variable is in a block is not known."""
    known, words, blocks, line, is_file = dict[str, str](), list[str](), list[str](), 1, False

    def value(found: re.Match[str]) -> str:
        """Of a variable, which the shell splits into words where it stands without quotes."""
        text = known.get(found[2] or found[3])
        return found[0] if text is None else PIECE.sub(_hide, text) if found[1] == "$" else text.translate(HIDDEN)

    for row in PIECE.sub(_hide, text).split("\n"):
        tokens = shlex.shlex(REFERENCE.sub(value, row), posix=True, punctuation_chars=True)
        tokens.whitespace_split, tokens.commenters = True, ""
        for token in (*tokens, ";"):
            is_operator = set(token) <= set(";&|()<>")
            words += [] if is_operator or is_file else [token.translate(SHOWN)]
            is_file = is_operator and not set(token).isdisjoint("<>")
            if is_operator and not is_file:
                argv = list(dropwhile(lambda word: word in KEYWORDS or word.startswith("-"), words))
                for word in words[: len(words) - len(argv)]:
                    blocks = [*blocks, word] if word in BLOCKS else blocks[:-1] if word in BLOCKS.values() else blocks
                found = [match for match in takewhile(bool, map(ASSIGNMENT.fullmatch, argv)) if match]
                assigned = {match[1]: f"${match[1]} {match[3]}" if match[2] else match[3] for match in found}
                known |= {name: f"${name}" if blocks else text for name, text in assigned.items()}
                if argv:
                    yield Command(argv, line, assigned, token.strip("();") == "&", not {"if", "case"}.isdisjoint(blocks))
                words = []
        line += 1 + row.count(CONTINUED) + row.count(chr(HIDDEN[ord("\n")]))


def _hide(piece: re.Match[str]) -> str:
    """As one plain word for `shlex`, or a part of one."""
    text, first = piece[0], piece[0][0]
    if first == "#" or len(text) == 1 or text == "\\\n" or SPLIT.fullmatch(text):
        return CONTINUED if first == "\\" else text.strip('"') if first in '"$' else ""
    text = text[1:-1] if first in "'\"(" else text
    if first == "'":
        text = re.sub("`([^`]*)`", r"$(\1)", text).replace("$", LATER)
    elif first in '"\\':
        text = re.sub(r"\\(.)", lambda found: LATER if found[1] == "$" else found[1], text)
    elif text.startswith("$(("):
        text = re.sub(r"(?<![\w$])[A-Za-z_]\w*", r"$\g<0>", text)
    return '"' + text.replace("$", QUOTED).translate(HIDDEN) + '"'


def number(text: str | None, layout: Layout) -> int | None:
    """A count, `$SLURM_NNODES` and the like, or a product of those in `$((...))`; None of anything else."""
    parts = map(FACTOR.fullmatch, re.sub(rf"\s|[${LATER}]\(\(|\)\)", "", text or "").split("*"))
    values = [int(part[1] or getattr(layout, SLURM_VARIABLES.get(part[2], ""), None) or 0) if part else 0 for part in parts]
    return math.prod(values) or None


def _layout(options: Mapping[str, str], job: Layout | None) -> Layout:
    """As the options say it, else as the job has it; sbatch takes 1 for what nothing says."""
    default = job or Layout(nodes=1, tasks=1)
    names = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "gpus-per-task", "gpus")
    numbers = (number(options[name].rpartition(":")[2], default) if name in options else 0 for name in names)
    nodes, total, tasks, cpus, per_node, per_task, gpus = numbers
    if nodes == 0:
        nodes = 1 if total == 1 else default.nodes if job or total == 0 else total // tasks if total and tasks else None
    tasks = total // nodes if total and nodes else default.tasks if total == tasks == 0 else tasks or None
    gres = GRES.search(options.get("gres", ""))
    counts = (per_node, (per_task or 0) * (tasks or 0), (gpus or 0) // nodes if nodes else 0, int(gres[1] or 1) if gres else 0)
    return Layout(nodes, tasks, min(filter(None, counts), default=default.gpus), default.cpus if cpus == 0 else cpus)


def _launch(command: Command, layout: Layout, *, has_more: bool) -> Launch | None:
    """None of a command that starts no ranks."""
    words, options = list(dropwhile(ASSIGNMENT.fullmatch, command.words)), dict[str, str]()
    srun = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == "srun"), None)
    if srun is not None:
        options, words = read_options(words[srun + 1 :], SRUN)
        layout = _layout(options, layout)
    if command.is_conditional or (srun is not None and words and words[0].startswith("$")):
        layout, has_more = Layout(), True
    shell = next((at for at, word in enumerate(words) if re.fullmatch(r"(.*/)?(ba|da|z|k)?sh", word)), len(words))
    text = next((at + 1 for at in range(shell + 1, len(words)) if re.fullmatch(r"-[a-z]*c", words[at])), len(words))
    words[text : text + 1] = [word for each in words[text : text + 1] for inner in read_commands(each) for word in inner.words]
    end = next((at for at, word in enumerate(words) if word.endswith(".py")), len(words))
    found = [(KINDS[name], at) for at, word in enumerate(words[:end]) if (name := word.rpartition("/")[2]) in KINDS]
    if not words or (srun is None and not (found and (found[0][1] == 0 or end < len(words)))):
        return None
    kind, start = found[-1] if found else (None, end)
    arguments = _arguments(words[start + 1 : None if kind == "python" else end]) | ({"": ""} if has_more else {})
    is_one = "1" if kind == "torchrun" and "" not in arguments else None  # as torchrun has it
    nnodes, ranks, total = (number(arguments.get(name, is_one), layout) for name in ("nnodes", "nproc_per_node", "num_processes"))
    if kind == "accelerate":
        machines = nnodes if srun is None else layout.nodes
        ranks = max(1, total // machines) if total and machines else None
    return Launch(command, srun is not None, options, layout, words, kind, arguments, nnodes, 1 if kind == "python" else ranks)


def _arguments(words: Sequence[str]) -> dict[str, str]:
    """`--name value` and `--name=value`, the first of a name."""
    found = dict[str, str]()
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            name = name.lstrip("-").replace("-", "_")
            found.setdefault(NAMES.get(name, name), value if equals else after)
        elif word[:1] in ("$", LATER) and (not before.startswith("-") or "=" in before or before == "--standalone"):
            found[""] = word
    return found


def _settings(launch: Launch) -> Iterator[tuple[int, str, str]]:
    pairs = (part.partition("=")[::2] for word in launch.words for part in re.split(r"[\s,]+", word))
    exported = (part.partition("=")[::2] for part in launch.options.get("export", "").split(","))
    for name, value in (*launch.arguments.items(), *pairs, *exported):
        yield launch.command.line, name.lstrip("-").replace("-", "_").upper(), value.strip("\"'")
