"""What `hpcddp render --explain` prints: the script, the lines of its templates beside it, and below each line its values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from hpcddp.core.text import count
from hpcddp.script.template_marks import TemplatePlace
from hpcddp.script.templating import FOLDER
from hpcddp.submit.explain import ExplainedLine, Origin

HEAD = (
    "Beside each line its line in the template; below it what changes it: values of the profile",
    "[grade, source], of the sweep and of the settings (where they are given).",
)

SINGLE_KEYS = 6
"""So many keys of a record are written out with their values; more are counted by their part of the record."""

GUTTER = "      "


def explanation_plain(lines: Sequence[ExplainedLine]) -> list[dict[str, Any]]:
    """The lines as JSON-able values."""
    return [
        {
            "line": number,
            "text": line.text,
            "templates": [{"file": place.file, "line": place.line, "block": place.block} for place in line.templates],
            "values": [_plain(origin) for origin in line.origins],
        }
        for number, line in enumerate(lines, start=1)
    ]


def explanation(lines: Sequence[ExplainedLine], width: int) -> str:
    """The script within `width` columns; what is longer is cut, and JSON has it in full."""
    text = [*HEAD]
    for heading, of_block in groupby((line for line in lines if line.text.strip()), key=lambda line: _heading(line.templates[0])):
        text += ["", heading]
        for origins, same in groupby(of_block, key=lambda line: line.origins):
            explained = list(same)
            text += [f"{line.templates[0].line:4}  {line.text}" for line in explained]
            several = f" ({len(explained)} lines)" if len(explained) > 1 else ""
            text += [f"{GUTTER}<- {words}{several}" for words in _words(origins)]
    return "\n".join(_cut(line, width) for line in text)


def _plain(origin: Origin) -> dict[str, Any]:
    return {key: each for key, each in asdict(origin).items() if each is not None}


def _heading(place: TemplatePlace) -> str:
    file = Path(place.file)
    name = f"{FOLDER.name}/{file.name}" if file.parent == FOLDER else str(file)
    return f"{name}, block {place.block}" if place.block else f"{name}"


def _words(origins: Sequence[Origin]) -> Iterator[str]:
    for name in dict.fromkeys(origin.input for origin in origins):
        of_input = [origin for origin in origins if origin.input == name]
        if len(of_input) <= SINGLE_KEYS:
            yield from (_named(origin) for origin in of_input)
        else:
            parts = Counter(origin.key.partition(".")[0] for origin in of_input)
            counted = ", ".join(f"{part} ({number})" if number > 1 else part for part, number in parts.items())
            yield f"{count(len(of_input), 'value')} of the {name}: {counted}"


def _named(origin: Origin) -> str:
    value = origin.value if isinstance(origin.value, str) else json.dumps(origin.value)
    if origin.input != "profile":
        return f"{'settings ' * (origin.input == 'settings')}{origin.key}: {value} ({origin.place})"
    trust = ", ".join(each for each in (origin.grade, origin.source) if each) or "no source"
    return f"{origin.key}: {value} [{trust}]"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
