"""A job script as far as it can be read without running it: header options, commands, and the calls of srun among them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SHORT = {
    "-A": "--account",
    "-c": "--cpus-per-task",
    "-C": "--constraint",
    "-e": "--error",
    "-G": "--gpus",
    "-J": "--job-name",
    "-K": "--kill-on-bad-exit",
    "-l": "--label",
    "-n": "--ntasks",
    "-N": "--nodes",
    "-o": "--output",
    "-p": "--partition",
    "-q": "--qos",
    "-t": "--time",
    "-u": "--unbuffered",
    "-w": "--nodelist",
    "-x": "--exclude",
}
"""Of sbatch and srun alike."""

WITHOUT_VALUE = frozenset(
    [
        *("--contiguous", "--exact", "--exclusive", "--hold", "--interactive", "--kill-on-bad-exit", "--label", "--multi-prog"),
        *("--no-kill", "--no-requeue", "--overcommit", "--overlap", "--oversubscribe", "--parsable", "--preserve-env", "--pty"),
        *("--quiet", "--requeue", "--spread-job", "--unbuffered", "--use-min-nodes", "--verbose", "--wait-all-nodes"),
    ]
)
"""Options after which the next word is another option, or the command."""

OPTIONS_LATER = re.compile(r"\$(@|\*|\{[@*]|\{?\w*(?:OPT|ARG|FLAG)|\{\w+:?\+)", re.IGNORECASE)
"""A word of the shell that stands for options which only the running script knows."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of sbatch or srun, by its long name."""

    name: str
    value: str | None
    line: int
    has_space: bool = False
    """Its value stands behind a space."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of the script, continued lines joined."""

    text: str
    line: int
    comment: str
    """The comment above it, or above commands without a blank line between; or nothing."""

    @functools.cached_property
    def unquoted(self) -> str:
        """Its text with what stands in single quotes blanked: the shell that runs the script expands nothing there."""
        return _quoting(self.text).unquoted


@dataclass(frozen=True, kw_only=True)
class Srun:
    """A call of srun."""

    line: int
    options: tuple[Option, ...]
    is_open: bool
    """Some of its options are known only when the script runs."""
    program: str
    """What it starts: the first word."""
    is_captured: bool
    """Its output is read by the script: it asks something, and starts no ranks."""
    command: Command

    def get(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)

    @property
    def starts_ranks(self) -> bool:
        return not (self.is_captured or self.program in ("true", "hostname") or self.get("--overlap"))


@dataclass(frozen=True, kw_only=True)
class Script:
    """The whole script."""

    text: str

    @functools.cached_property
    def header(self) -> tuple[Option, ...]:
        """Options of all `#SBATCH` lines, those that sbatch does not read too."""
        lines = enumerate(self.text.split("\n"), start=1)
        return tuple(
            option
            for number, line in lines
            if line.startswith("#SBATCH")
            for option in _options(_split(line[len("#SBATCH") :]), number)[0]
        )

    @functools.cached_property
    def commands(self) -> tuple[Command, ...]:
        return tuple(_commands(self.text.split("\n")))

    @functools.cached_property
    def sruns(self) -> tuple[Srun, ...]:
        return tuple(srun for command in self.commands for srun in _sruns(command))

    def get(self, name: str) -> Option | None:
        """The header's option of that name, the last one as sbatch has it."""
        return next((option for option in reversed(self.header) if option.name == name), None)


def _commands(lines: Sequence[str]) -> Iterator[Command]:
    joined, first, end, comment = "", 0, "", ""
    for number, line in enumerate(lines, start=1):
        if end:  # text handed to a command
            end = "" if line.strip() == end else end
        elif not joined and line.lstrip().startswith("#"):
            comment = line
        elif line.endswith("\\"):
            joined, first = f"{joined}{line[:-1]}", first or number
        elif (quoting := _quoting(f"{joined}{line}")).is_open:
            joined, first = f"{joined}{line}\n", first or number
        else:
            text = quoting.code.strip()
            comment = comment if text or line.strip() else ""
            if text:
                yield Command(text=text, line=first or number, comment=comment)
            here = re.search(r"<<-?\s*(['\"]?)(\w+)\1", text)
            joined, first, end = "", 0, here[2] if here else ""


@dataclass(frozen=True)
class _Quoting:
    """Text of the shell, by its quotes."""

    code: str
    """Without a comment at its end."""
    unquoted: str
    """What stands in single quotes blanked."""
    bare: str
    """What stands in any quotes blanked."""
    is_open: bool
    """A quote is not closed."""


def _quoting(text: str) -> _Quoting:
    quote, escaped, kinds = "", False, list[str]()
    for at, character in enumerate(text):
        if not quote and not escaped and character == "#" and (at == 0 or text[at - 1] in " \t;"):
            break
        kinds.append(quote)
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    code = text[: len(kinds)]
    unquoted = "".join(" " if kind == "'" else character for character, kind in zip(code, kinds, strict=True))
    bare = "".join(" " if kind else character for character, kind in zip(code, kinds, strict=True))
    return _Quoting(code=code, unquoted=unquoted, bare=bare, is_open=bool(quote))


def _sruns(command: Command) -> Iterator[Srun]:
    for found in re.finditer(r"(?<![\w./-])(?<!-v )(?<!type )(?<!which )srun(?=\s)", _quoting(command.text).bare):
        options, rest, is_open = _options(_split(command.text[found.end() :]), command.line)
        yield Srun(
            line=command.line,
            options=tuple(options),
            is_open=is_open,
            program=rest[0].rstrip(";") if rest else "",
            is_captured="$(" in command.text[: found.start()],
            command=command,
        )


def _options(words: Sequence[str], line: int) -> tuple[list[Option], Sequence[str], bool]:
    """The options that the words begin with, the words after them, and whether some are known later only."""
    found, is_open, at = list[Option](), False, 0
    while at < len(words):
        word = words[at]
        if OPTIONS_LATER.match(word):
            is_open, at = True, at + 1
            continue
        if not word.startswith("-") or word == "-":
            break
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            name, value = SHORT.get(word[:2], word[:2]), word[2:].removeprefix("=")
            equals = "=" * bool(value)
        behind = not equals and name not in WITHOUT_VALUE and at + 1 < len(words) and not words[at + 1].startswith("-")
        found.append(Option(name=name, value=words[at + 1] if behind else value if equals else None, line=line, has_space=behind))
        at += 2 if behind else 1
    return found, words[at:], is_open


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that another line closes
        return text.split()
