"""What the program prints is plain English: short sentences, and none of the words that only its authors understood."""

from __future__ import annotations

import ast

import pytest

from tests.words import Sentence, of_source, sentences, wrong


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
