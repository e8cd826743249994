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

KIND = re.compile(
    r"(?:.*/)?(?:(?P<torchrun>torchrun|torchrun_jsc|torch\.distributed\.(?:run|launch))|(?P<deepspeed>deepspeed)"
    r"|(?P<accelerate>accelerate(?:-launch|\.commands\.launch)?)|(?P<python>python[\d.]*))"
)
"""Programs, and modules of Python, by the kind of launch: all but Python start the ranks of a node."""

NAMES = {"num_machines": "nnodes", "num_nodes": "nnodes", "num_gpus": "nproc_per_node", "machine_rank": "node_rank"}
"""Arguments of accelerate and deepspeed -> torchrun's."""

COUNT = re.compile(
    rf"(\d+)|(?P<gpus>gpu|auto)|[${LATER}]?\{{?SLURM_(?:(?P<nodes>NNODES|JOB_NUM_NODES)|(?P<gpus_>GPUS_(?:ON|PER)_NODE)"
    r"|(?P<tasks>NTASKS_PER_NODE)|(?P<cpus>CPUS_PER_TASK))(?::?-\w+)?\}?"
)
GRES = re.compile(r"\bgpu(?::[^:,($]*[^\d:,($][^:,($]*)?(?::(\d+))?(?=[,(]|$)")
"""`gpu`, `gpu:4`, `gpu:a100`, `gpu:a100:4`, `gpu:4(S:0-1)` in --gres, and the number."""


class Command(NamedTuple):
    """A simple command without quotes, redirections and keywords, and variables that it sets in any case."""

    words: list[str]
    line: int
    assigned: dict[str, str]
    in_background: bool
    is_conditional: bool


class Counts(NamedTuple):
    """Of a job or a step; None is not known before the script runs. Tasks and GPUs are those of a node, CPUs of a task."""

    nodes: int | None = None
    tasks: int | None = None
    gpus: int | None = None
    cpus: int | None = None


class Launch(NamedTuple):
    """A call of srun with its `options`, or of a launcher. `words` are what a task runs, with those of a text behind `bash -c`.
    `arguments` have torchrun's names; the one without a name stands for some that only the running script knows.
    """

    command: Command
    in_step: bool
    options: Mapping[str, str]
    layout: Counts
    words: Sequence[str]
    kind: str | None
    starts_ranks: bool
    arguments: Mapping[str, str]
    nnodes: int | None
    ranks: int | None
    """That each call starts on its node."""


class Job:
    """A whole script, as sbatch and the shell read it; of one in another language than a shell's the header."""

    def __init__(self, text: str) -> None:
        self.text = text
        lines = HERE.sub(lambda found: found[2] + "\n" * found[0].count("\n"), text.replace("\r", "") + "\n").split("\n")
        self.lines = dict(enumerate(lines, start=1))  # without here-documents
        commands = (at for at, line in self.lines.items() if re.match(r"[ \t\ufeff]*[^#\s\ufeff]", line))
        self.end = next(commands, len(lines) + 1)  # of the header
        self.directives = {at: _directive(line[7:]) for at, line in self.lines.items() if line.startswith("#SBATCH")}
        self.header = dict(pair for at, (options, _) in self.directives.items() if at < self.end for pair in options.items())
        is_heterogeneous = any(rest[:1] in (["hetjob"], ["packjob"]) for _, rest in self.directives.values())
        self.layout = Counts() if is_heterogeneous else _layout(self.header, None)
        self.commands = list(read_commands("\n".join(lines))) if re.match(r"#!.*\b(ba|da|k|z)?sh\b", text) else []
        self.launches = [*filter(None, (_launch(each, self.layout, has_more="PET_" in text) for each in self.commands))]
        self.settings = [(each.line, f"{name}={value}") for each in self.commands for name, value in each.assigned.items()]
        self.in_steps = _in_steps(text)
        self.settings += [setting for launch in self.launches for setting in _settings(launch)]


def _in_steps(text: str) -> set[int]:
    """Lines of functions that tasks of a step receive: `bash -c "$(declare -f NAME); NAME"`."""
    names = "|".join(re.findall(r"\w+", " ".join(re.findall(r"\$\(declare -f ([\w ]+)\)", text))))
    bodies = re.finditer(rf"^(?:{names})\(\) \{{$.*?^\}}$", text, re.DOTALL | re.MULTILINE) if names else ()
    return {text.count("\n", 0, body.start()) + 1 + at for body in bodies for at in range(body[0].count("\n") + 1)}


def _directive(line: str) -> tuple[dict[str, str], list[str]]:
    words = re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", re.sub(r"\s#.*", "", line))
    return read_options([re.sub("[\"']", "", word) for word in words], SBATCH)


def read_options(words: Sequence[str], table: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Options that the words begin with, by long name (with dashes where the command has none), and the words behind them."""
    found, rest = dict[str, str](), list(words)
    while rest and re.match(r"--?[^-=]", rest[0]):
        name, equals, value = (word := rest.pop(0)).partition("=")
        if name.startswith("--"):
            longer = [each for each in table if each == name[2:]] or [each for each in table if each.startswith(name[2:])]
            name = longer[0] if len(longer) == 1 else name
        elif name[1:] not in table:  # else it is -nodes=2
            name, equals, value = SHORT.get(name[1], word), word[2:], word[2:].removeprefix("=")
        found[ALIASES.get(name, name)] = rest.pop(0) if table.get(name) == "value" and not equals and rest else value
    return found, rest


def read_commands(text: str) -> Iterator[Command]:
    """The commands of a shell's text, with the values of its variables; what a variable is in a block is not known."""
    known, words, blocks, line, is_file = dict[str, str](), list[str](), list[str](), 1, False

    def value(found: re.Match[str]) -> str:
        """Of a variable, which the shell splits into words where it stands without quotes."""
        text = known.get(found[2] or found[3])
        return found[0] if text is None else PIECE.sub(_hide, text) if found[1] == "$" else text.translate(HIDDEN)

    for row in PIECE.sub(_hide, text).split("\n"):
        tokens = shlex.shlex(REFERENCE.sub(value, row), posix=True, punctuation_chars=True)
        tokens.whitespace_split, tokens.commenters, tokens.escape = True, "", ""
        for token in (*tokens, ";"):
            is_operator = set(token) <= set(";&|()<>")
            words += [] if is_operator or is_file else [token.translate(SHOWN)]
            is_file = is_operator and not set(token).isdisjoint("<>")
            if is_operator and not is_file:
                argv = list(dropwhile(lambda word: word in KEYWORDS or word.startswith("-"), words))
                for word in words[: len(words) - len(argv)]:
                    blocks = [*blocks, word] if word in BLOCKS else blocks[:-1] if word in BLOCKS.values() else blocks
                matches = map(ASSIGNMENT.fullmatch, argv)
                found = [match for match in (matches if "export" in words else takewhile(bool, matches)) if match]
                assigned = {each[1]: f"{known.get(each[1], '$' + each[1])} {each[3]}" if each[2] else each[3] for each in found}
                known |= {name: f"${name}" if blocks else text for name, text in assigned.items()}
                is_conditional = "if" in blocks or "case" in blocks
                if argv:
                    yield Command(argv, line, {} if is_conditional else assigned, token.strip("();") == "&", is_conditional)
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
    text = re.sub(r"\$\(\([^()]*\)\)", lambda found: re.sub(r"(?<![\w${])[A-Za-z_]\w*", r"$\g<0>", found[0]), text)
    return '"' + text.replace("$", QUOTED).translate(HIDDEN) + '"'


def amount(text: str | None, layout: Counts) -> int | None:
    """A count, `$SLURM_NNODES` and the like, or a product in `$((...))` or `$(expr ...)`; None of anything else."""
    parts = map(COUNT.fullmatch, re.sub(rf"[\s\\]|[${LATER}]\((?:\(|expr )|\)+$", "", text or "").split("*"))
    values = [int(part[1] or getattr(layout, (part.lastgroup or "").strip("_")) or 0) if part else 0 for part in parts]
    return math.prod(values) or None


def _layout(options: Mapping[str, str], job: Counts | None) -> Counts:
    """As the options say it, else as the job has it; one task a node if nothing says it."""
    default = job or Counts(tasks=1)
    names = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "gpus-per-task", "gpus")
    numbers = (amount(re.sub(r"^[\w.-]+:", "", options[name]), default) if name in options else 0 for name in names)
    nodes, total, tasks, cpus, per_node, per_task, gpus = numbers
    nodes = nodes if nodes != 0 else 1 if total == 1 else default.nodes or (total // tasks if total and tasks else None)
    tasks = total // nodes if total and nodes else default.tasks if total == tasks == 0 else tasks or None
    gres = GRES.search(options.get("gres", ""))
    counts = (per_node, (per_task or 0) * (tasks or 0), (gpus or 0) // nodes if nodes else 0, int(gres[1] or 1) if gres else 0)
    return Counts(nodes, tasks, min(filter(None, counts), default=default.gpus), default.cpus if cpus == 0 else cpus)


def _launch(command: Command, layout: Counts, *, has_more: bool) -> Launch | None:
    """None of a command that starts no ranks."""
    words, options = list(dropwhile(ASSIGNMENT.fullmatch, command.words)), dict[str, str]()
    srun = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == "srun"), None)
    if srun is not None:
        options, words = read_options(words[srun + 1 :], SRUN)
        layout = _layout(options, layout)
    if command.is_conditional or (srun is not None and words and re.match(r"\$[^/]*$", words[0])):
        layout, has_more = Counts(), True
    shell = next((at for at, word in enumerate(words) if re.fullmatch(r"(.*/)?(ba|da|z|k)?sh", word)), len(words))
    text = next((at + 1 for at in range(shell + 1, len(words)) if re.fullmatch(r"-[a-z]*c", words[at])), len(words))
    words[text : text + 1] = [word for each in words[text : text + 1] for inner in read_commands(each) for word in inner.words]
    end = next((at for at, word in enumerate(words) if word.endswith(".py")), len(words))
    found = [(match.lastgroup, at) for at, word in enumerate(words[:end]) if (match := KIND.fullmatch(word))]
    is_started = srun is not None or (found and (found[0][1] == 0 or end < len(words)))
    if not words or not is_started or command.words[0] in ("echo", "printf"):
        return None
    kind, start = found[-1] if found else (None, end)
    arguments = _arguments(words[start + 1 : None if kind == "python" else end]) | ({"": ""} if has_more else {})
    is_one = "1" if kind == "torchrun" and "" not in arguments else None  # as torchrun has it
    nnodes, ranks, total = (amount(arguments.get(name, is_one), layout) for name in ("nnodes", "nproc_per_node", "num_processes"))
    machines, starts_ranks = nnodes if srun is None else layout.nodes, kind not in (None, "python")
    ranks = {"python": 1, "accelerate": max(1, total // machines) if total and machines else None}.get(kind or "", ranks)
    return Launch(command, srun is not None, options, layout, words, kind, starts_ranks, arguments, nnodes, ranks)


def _arguments(words: Sequence[str]) -> dict[str, str]:
    """`--name value` and `--name=value` by torchrun's names, the first of a name."""
    text, argument = "\n".join(words), re.compile(r"^--?([\w-]+)(?:=|(?<!standalone)\n(?!-)|$)(.*)$", re.MULTILINE)
    found = {name.replace("-", "_"): value for name, value in reversed(argument.findall(text))}
    has_more = re.search(rf"^[${LATER}]|^\s+--", argument.sub("", text), re.MULTILINE)
    return {NAMES.get(name, name): value for name, value in found.items()} | ({"": ""} if has_more else {})


def _settings(launch: Launch) -> Iterator[tuple[int, str]]:
    """Line and `NAME=value` of arguments, of variables in a step's text and in --export."""
    words = (part for word in (*launch.words, launch.options.get("export", "")) for part in re.split(r"[\s,]+", word))
    pairs = (*launch.arguments.items(), *(word.partition("=")[::2] for word in words))
    for name, value in () if launch.command.is_conditional else pairs:
        yield launch.command.line, name.lstrip("-").replace("-", "_").upper() + "=" + value.strip("\"'")
