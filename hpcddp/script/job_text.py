"""A job script as far as `hpcddp lint` reads it: sbatch's header, and the shell's commands as `shlex` splits them.

What a condition decides, what a here-document writes and what another file contains is not read.
"""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpcddp.script.option_table import SBATCH, SHORT

LATER = "\ue000"
"""Stands for a `$` in single quotes or behind a backslash: another shell, of a step's task, expands it."""

_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*+\))*+\)"
_ARRAY = rf"(?<==){_NESTED}"
_EXPANDED = rf"[${LATER}](?:{_NESTED}|\{{(?:[^{{}}]|\{{[^{{}}]*\}})*+\}})|`[^`]*`"
_QUOTED = rf"'[^']*'|\"(?:\\.|{_EXPANDED}|[^\"\\])*+\"|\\."
_PLAIN = rf"{_EXPANDED}|[^\s;&|()<>\"'\\`]"
PIECE = re.compile(rf"(?P<array>{_ARRAY})|(?P<quoted>{_QUOTED})|{_PLAIN}", re.DOTALL)
TOKEN = re.compile(rf"\\\n|#[^\n]*|(?P<operator>[;&|()<>\n]+)|(?P<word>(?:{_ARRAY}|{_QUOTED}|{_PLAIN})++)", re.DOTALL)
"""The shell's text: comments, operators, and words of plain and quoted pieces, `$(...)` and an array's `=(...)`."""

HERE = re.compile(r"(?<!<)<<-?[ \t]*\\?[\"']?(\w+)[\"']?([^\n]*)\n.*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
REFERENCE = re.compile(rf"[${LATER}](?:(\w+)|\{{(\w+)(?:\[[@*]\])?\}})")
ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
DECLARING = ("export", "declare", "readonly", "local", "typeset", "env")
HETEROGENEOUS = re.compile(r"#SBATCH\s+(het|pack)job")
RESERVED = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "exec", "nohup", "fi", "done"))


class Option(NamedTuple):
    """An option by its long name without dashes; one that the command does not have is as it was written, and has no kind."""

    name: str
    value: str | None
    line: int
    kind: str | None


@dataclass(frozen=True, kw_only=True)
class Command:
    """One simple command: its words without quotes, redirections and what only the shell's grammar needs."""

    words: tuple[str, ...]
    line: int
    in_background: bool = False
    is_conditional: bool = False
    """It stands between `if` and `fi`, or `case` and `esac`."""

    @property
    def assigned(self) -> list[tuple[str, str]]:
        """Variables that it sets; of `NAME+=value` the value is the old one's reference and what is added."""
        words = (word for word in self.words if word not in DECLARING and not word.startswith("-"))
        found = itertools.takewhile(bool, map(ASSIGNMENT.fullmatch, words))
        return [(match[1], f"${{{match[1]}}} {match[3]}" if match[2] else match[3]) for match in found if match]

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments, without assignments before it."""
        return tuple(itertools.dropwhile(ASSIGNMENT.fullmatch, self.words))


@dataclass(frozen=True, kw_only=True)
class JobText:
    """The whole script."""

    text: str

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.replace("\r", "").split("\n")

    @functools.cached_property
    def first_command(self) -> int:
        """The line at which sbatch ends reading the header: the first that is neither empty nor a comment."""
        found = (at for at, line in enumerate(self.lines, start=1) if re.match(r"[ \t\ufeff]*[^#\s\ufeff]", line))
        return next(found, len(self.lines) + 1)

    @property
    def is_heterogeneous(self) -> bool:
        """Its parts have headers of their own."""
        return any(map(HETEROGENEOUS.match, self.lines))

    @functools.cached_property
    def directives(self) -> dict[int, list[str]]:
        """Line -> words of `#SBATCH` in it, as sbatch splits them; of a heterogeneous job those of its first part."""
        lines = itertools.takewhile(lambda line: not HETEROGENEOUS.match(line[1]), enumerate(self.lines, start=1))
        return {at: _split(line[7:]) for at, line in lines if line.startswith("#SBATCH")}

    @functools.cached_property
    def header(self) -> tuple[Option, ...]:
        """The options that sbatch reads."""
        found = ((at, words) for at, words in self.directives.items() if at < self.first_command)
        return tuple(option for at, words in found for option in read_options(words, SBATCH, at)[0])

    def get(self, name: str) -> str | None:
        """The value of the header's last option of that name."""
        return next((option.value or "" for option in reversed(self.header) if option.name == name), None)

    @functools.cached_property
    def commands(self) -> tuple[Command, ...]:
        """Those of a shell's script; none of one in another language."""
        is_shell = re.match(r"#!.*\b(ba|da|k|z)?sh\b", self.text) is not None
        return tuple(read_commands("\n".join(self.lines))) if is_shell else ()

    @functools.cached_property
    def code(self) -> str:
        """All words of all commands: what stands in no comment."""
        return "\n".join(" ".join(command.words) for command in self.commands)


def read_options(words: Sequence[str], table: Mapping[str, str], line: int) -> tuple[list[Option], Sequence[str]]:
    """The options that the words begin with, abbreviated ones as getopt reads them, and the words behind them."""
    found, at = list[Option](), 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        name, equals, value = words[at].partition("=")
        if name.startswith("--"):
            longer = [each for each in table if each == name[2:]] or [each for each in table if each.startswith(name[2:])]
            name = longer[0] if len(longer) == 1 else name
        elif name[1:] in table:  # -nodes=2
            equals = value = ""
        else:
            name, value = SHORT.get(name[1:2], name[1:2]), words[at][2:].removeprefix("=")
            equals = "=" if value else ""
        name = {"tasks-per-node": "ntasks-per-node", "share": "oversubscribe"}.get(name, name)
        kind = table.get(name)
        at += 1
        if kind == "value" and not equals and at < len(words):
            value, equals, at = words[at], "=", at + 1
        found.append(Option(name=name, value=value if equals else None, line=line, kind=kind))
    return found, words[at:]


def read_commands(text: str) -> Iterator[Command]:
    """The commands of a shell's text, here-documents left out."""
    text = HERE.sub(lambda found: found[2] + "\n" * found[0].count("\n"), f"{text}\n")
    words, line, depth, is_file = list[str](), 0, 0, False
    for token in TOKEN.finditer(text):
        operator = token["operator"] or ""
        if token["word"] and not is_file:
            line = line if words else text.count("\n", 0, token.start()) + 1
            words.append(_without_quotes(token[0]))
        is_file = "<" in operator or ">" in operator
        if operator and words and not is_file:
            depth = max(0, depth + sum((word in ("if", "case")) - (word in ("fi", "esac")) for word in words))
            argv = tuple(itertools.dropwhile(RESERVED.__contains__, words))
            in_background = operator.strip("();\n") == "&"
            if argv:
                yield Command(words=argv, line=line, in_background=in_background, is_conditional=depth > 0)
            words = []


def split_value(value: str) -> list[str]:
    """A variable's value as the shell splits it where it stands without quotes."""
    return [_without_quotes(token["word"]) for token in TOKEN.finditer(value) if token["word"]]


def _without_quotes(word: str) -> str:
    return "".join(map(_piece, PIECE.finditer(word)))


def _piece(piece: re.Match[str]) -> str:
    text = piece[0]
    if piece["array"]:
        return " ".join(split_value(text[1:-1]))
    if text.startswith("'"):
        return text[1:-1].replace("$", LATER).replace("`hostname`", f"{LATER}(hostname)")
    text = text[1:-1] if text.startswith('"') else text
    return re.sub(r"\\(.)", _escaped, text, flags=re.DOTALL) if piece["quoted"] else text


def _escaped(found: re.Match[str]) -> str:
    return {"$": LATER, "\n": ""}.get(found[1], found[1])


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is not closed
        return text.split()
