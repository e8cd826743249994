"""What the program prints is plain English: short sentences, and none of the words that only its authors understood.

`make words` lists every sentence that the source can print, to be read as a user would:

    file:line  words  sentence

A sentence is what a string of code says in four words or more, with {name} for what is filled in, and the help of a command. It
ends at a full stop, a question mark or the end of its line, and at a colon before a capital letter; a semicolon ends none. What
is filled in counts as one word, and so does code in backticks. Examples of what the analysis says follow.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.test_source import FILES, ROOT, docstrings, parsed

LONGEST = 25
"""Words of a sentence."""

SHORTEST = 4
"""Words of a string that is no name and no format."""

BETTER = {
    r"\band so (?:in|are|is|do|does|did)\b": "a sentence of its own",
    r"\bcomes? first\b": "an imperative",
    r"\bwill do\b": "is enough",
    r"\b(?:so|as) many\b": "N, the same number of",
    r"\b(?:knows?|knew)\b(?! (?:what|how|why|whether))": "defines, supports, detects",
    r"\b[Mm]end": "fix",
    r"\b(?:is|are|was|were|be) over(?=[.,;:)]|$)": "finished, used up",
    r"\b[Ee]nd(?:s|ed)? with \d": "exits with code N",
    r"\bwithout a word\b": "without an error message",
    r"\b(?:leaves?|left) out\b|\b(?:keep|kept|stay) off\b": "omit, exclude",
    r"\bgates?\b": "check",
    r"\bpictures?\b": "image",
    r"\btwins?\b": "test replica",
    r"\bheadline\b": "throughput without the hook",
    r"\bpeer wait\b": "synchronization wait",
    r"\bstrangers?\b|\bnobody\b": "processes outside the job",
    r"\bmore costs\b": "larger values are slower",
    r"\bthat shows\b": "no measurable effect",
    r"\b(?:asks?|asked|says?|said|wants?|wanted|tells?) (?:for|of)\b": "requests, contains, reports",
    r"\ball the same\b": "still",
    r"\b[Hh]and-?over\b|\btravel": "batch transfer, is sent",
    r"\btold\b|\bof two kinds\b|\bstays? otherwise\b": "what it is, by its name",
    r"\bburst network\b|\bfar socket\b|\bmore than perfect\b": "the verdict in words",
    r"\bgoes? on (?:from|after)\b": "resumes",
}
"""Words that a reader guesses at -> what to write."""

NAMES = ("nodes as asked for",)
"""Keys of records, which stay."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """Of the program; `place` is file:line."""

    place: str
    text: str

    @property
    def words(self) -> int:
        return sum(any(map(str.isalnum, word)) for word in plain(self.text).split())

    def __str__(self) -> str:
        return f"{self.place}  {self.words}  {self.text}"


def plain(sentence: str) -> str:
    """What is filled in, and code, as one word each."""
    return re.sub(r"`[^`]*`|\{[^{}]*\}", "x", sentence)


def split(text: str) -> Iterator[str]:
    """The sentences of a text; what two spaces part is a column of its own."""
    for line in text.splitlines():
        yield from filter(None, map(str.strip, re.split(r"(?<=[.?!])[\"')]?\s+(?=[^a-z])|(?<=:)\s+(?=[A-Z])|\s{2,}", line)))


def text_of(node: ast.expr) -> str | None:
    """What a string says; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) or name_of(value) for value in values)
        case ast.BinOp(op=ast.Add(), left=left, right=right) if text_of(left) or text_of(right):
            return (text_of(left) or name_of(left)) + (text_of(right) or name_of(right))
    return None


def name_of(node: ast.expr) -> str:
    """`{run}` of the expression `str(run)`."""
    names = (part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in ast.walk(node))
    return f"{{{next(filter(None, names), '...')}}}"


def strings(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost strings of code, and those within what is filled in; not patterns, dumps of Python and docstrings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
        return
    said = isinstance(node, ast.expr) and text_of(node) is not None
    if said:
        yield node  # type: ignore[misc]
    parts = (
        (part.value for part in ast.walk(node) if isinstance(part, ast.FormattedValue)) if said else ast.iter_child_nodes(node)
    )
    for part in parts:
        yield from strings(part)


def helps(tree: ast.AST) -> Iterator[ast.expr]:
    """Docstrings of click's commands and groups."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and re.search(
            r"\b(?:command|group)\(", "".join(map(ast.unparse, node.decorator_list))
        ):
            yield from docstrings(node)[:1]


def of_source(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and sentences of a module; in a command's help lines of a paragraph are one, but for its examples."""
    for node in strings(tree):
        yield from ((node.lineno, sentence) for sentence in split(text_of(node) or ""))
    for node in helps(tree):
        for paragraph in re.split(r"\n\s*\n", text_of(node) or ""):
            if "\b" not in paragraph:
                yield from ((node.lineno, sentence) for sentence in split(" ".join(paragraph.split())))


CODE = re.compile(r"\\[bdsSw]|\(\?|[<>]/|^#|\$\{|\[\^|import |\|[A-Z]|\.\*")
"""What patterns, scripts and templates have in them."""


def is_prose(text: str) -> bool:
    """Whether a reader takes it for words."""
    words = re.findall(r"(?<!\S)[\"'(]?[A-Za-z][a-z'-]*[.,;:)\"']*(?!\S)", plain(text))
    return len(plain(text).split()) >= SHORTEST and len(words) >= SHORTEST - 1 and not CODE.search(plain(text))


def sentences() -> list[Sentence]:
    """Of hpcddp/ and analysis/ in the order of files."""
    sources = ((file.relative_to(ROOT), parsed(file)) for file in FILES)
    found = [Sentence(f"{path}:{line}", text) for path, tree in sources for line, text in of_source(tree) if is_prose(text)]
    return list(dict.fromkeys(found))


def wrong(sentence: Sentence) -> list[str]:
    """What is wrong with a sentence's words."""
    shown = plain(sentence.text)
    long = [f"{sentence.words} words"] if sentence.words > LONGEST else []
    found = ((re.search(pattern, shown), better) for pattern, better in BETTER.items() if sentence.text not in NAMES)
    return long + [f"`{match[0]}`: {better}" for match, better in found if match]


@pytest.mark.dear
@pytest.mark.quick
def test_every_sentence_is_short_and_of_the_field() -> None:
    found = sentences()
    assert [f"{each}  <- {'; '.join(problems)}" for each in found if (problems := wrong(each))] == []
    assert len(found) > 2000


def test_sentences_of_a_module() -> None:
    code = (
        '"""Not a docstring, however long it is."""\n'
        "raise E(f'{a.b} has no {c!r}: Choose one of them. See `x y z` and ' + more)\n"
        "P = re.compile('a pattern is not for readers')\nNAME = 'two words'\n"
        "@click.command()\ndef f():\n '''Run it on\n all nodes.\n\n \b\n hpcddp f\n '''\n"
    )
    assert [text for _, text in of_source(ast.parse(code))] == [
        "{b} has no {c}:",
        "Choose one of them.",
        "See `x y z` and {more}",
        "two words",
        "Run it on all nodes.",
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("one " * 25, []),
        ("one " * 26, ["26 words"]),
        ("one " * 24 + "{several words in one} `and code too`", ["26 words"]),
        ("It ends with 3 where runs are over.", ["`are over`: finished, used up", "`ends with 3`: exits with code N"]),
        ("nodes as asked for", []),
    ],
)
def test_what_is_wrong_with_a_sentence(text: str, problems: list[str]) -> None:
    assert wrong(Sentence("x.py:1", text)) == problems


if __name__ == "__main__":
    from tests.analysis.test_every_sentence import analysis_sentences

    examples = [Sentence(place, text) for place, example in analysis_sentences() for text in split(example)]
    for each in [*sentences(), *examples]:
        print(each, *(f"  <- {problem}" for problem in wrong(each)), sep="")
