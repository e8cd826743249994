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

_HIDDEN = {ord(character): chr(0xE100 + ord(character)) for character in " \t\n\"'|;&()<>#"}
_SHOWN = {ord(hidden): chr(character) for character, hidden in _HIDDEN.items()}
"""What stands in `$(...)` is one word to shlex while these characters are hidden from it."""

QUOTED = re.compile(r"\\.|\"(?:\\.|[^\"\\])*\"|'[^']*'", re.DOTALL)
SUBSTITUTED = re.compile(rf"[${LATER}]\(\([^()]*\)\)|[${LATER}]\([^()]*\)|`[^`]*`|[${LATER}]\{{[^{{}}]*\}}")
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
        return tuple(read_commands(self.lines)) if is_shell else ()

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
            name = name[2:]
            longer = [each for each in table if each.startswith(name)]
            name = longer[0] if len(longer) == 1 and name not in table else name
            name = name if name in table else f"--{name}"
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


def read_commands(lines: Sequence[str]) -> Iterator[Command]:
    """The commands of a shell's text, here-documents left out."""
    text, first, end, depth = "", 0, "", 0
    for number, line in enumerate(lines, start=1):
        if end or (not text and line.lstrip().startswith("#")):
            end = "" if line.strip() == end else end
            continue
        text, first = f"{text}{line}", first or number
        tokens = None if text.endswith("\\") or re.search(r"\w=\([^)]*$", _hidden(text)) else _tokens(text)
        if tokens is None and number < len(lines):
            text = text.removesuffix("\\") + ("" if text.endswith("\\") else "\n")
            continue
        for command in _simple_commands(tokens or [], first):
            ends = [word for word in command.words if word in ("if", "case", "fi", "esac")]
            depth = max(0, depth + sum(1 if word in ("if", "case") else -1 for word in ends))
            words = tuple(itertools.dropwhile(RESERVED.__contains__, command.words))
            if words:
                yield Command(words=words, line=first, in_background=command.in_background, is_conditional=depth > 0)
        here = [word for operator, word in itertools.pairwise(tokens or []) if operator == "<<"]
        text, first, end = "", 0, here[0].lstrip("-\\") if here else ""


def _tokens(text: str) -> list[str] | None:
    """The text's operators, and its words with characters hidden; None while a quote is open."""
    text = re.sub(r"(?<=[^\s;])#", _HIDDEN[ord("#")], _hidden(QUOTED.sub(lambda found: _later(found[0]), text)))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return None


def split_value(value: str) -> list[str]:
    """A variable's value as the shell splits it where it stands without quotes."""
    return [word.translate(_SHOWN) for word in _hidden(value).split()]


def _hidden(text: str) -> str:
    while (hidden := SUBSTITUTED.sub(lambda found: found[0].translate(_HIDDEN), text)) != text:
        text = hidden
    return text


def _later(quoted: str) -> str:
    if quoted.startswith("'"):
        inner = quoted[1:-1].replace("$", LATER).replace("`hostname`", f"{LATER}(hostname)")
        return f"'{inner.translate(_HIDDEN)}'"
    return quoted.replace("\\$", LATER)


def _simple_commands(tokens: Sequence[str], line: int) -> Iterator[Command]:
    """Between the shell's operators."""
    words, at = list[str](), 0
    while at <= len(tokens):
        token = tokens[at] if at < len(tokens) else ";"
        at += 1
        if not re.fullmatch(r"[();<>|&]+", token):
            words.append(token.translate(_SHOWN))
        elif "<" in token or ">" in token:
            at += 1
        elif token.startswith("(") and words and words[-1].endswith("="):
            end = next((end for end in range(at, len(tokens)) if tokens[end].startswith(")")), len(tokens))
            words[-1] += " ".join(tokens[at:end]).translate(_SHOWN)
            at = min(end + 1, len(tokens))
        elif words:
            yield Command(words=tuple(words), line=line, in_background=token.strip("();") == "&")
            words = []


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is not closed
        return text.split()
