"""Where the lines of a script stand in their templates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest
from hpcddp.script.render import ScriptLaunch, render, render_marked
from hpcddp.script.templating import FOLDER
from tests.script.test_render import SUBMITTED, SWEEPS, by_hand, parts
from tests.script.test_shipped_scripts import SITES, script_parts

Parts = tuple[ClusterProfile, Point, JobRequest, ScriptLaunch]


def golden_parts() -> Iterator[Parts]:
    """What the golden scripts are made of."""
    for cluster in SWEEPS:
        profile, point, request = parts(cluster, 3)
        yield profile, point, request, by_hand(profile, point)
        yield profile, point, request, SUBMITTED
    yield from (script_parts(name, nodes) for name in SITES for nodes in (1, 4))


@pytest.mark.parametrize("of_golden", [*golden_parts()])
def test_marks_change_no_byte_and_every_line_has_a_place(of_golden: Parts) -> None:
    """Of every golden script."""
    lines = render_marked(*of_golden)
    assert "".join(f"{line.text}\n" for line in lines) == render(*of_golden)
    assert all(line.places for line in lines)


def edited(template: str, at: int) -> str:
    """A template with an `@` at the end of the literal text of its line `at`, from 1."""
    lines = template.split("\n")
    text, backslash = lines[at - 1].removesuffix("\\"), lines[at - 1].endswith("\\")
    end = "{% endmacro %}"
    lines[at - 1] = f"{text.removesuffix(end)}@{end * text.endswith(end)}{chr(92) * backslash}"
    return "\n".join(lines)


@pytest.mark.dear
def test_a_line_of_a_template_that_is_named_changes_the_line(tmp_path: Path) -> None:
    """Whatever line of a template is named first for a line of the script: an edit there changes this one."""
    for file in FOLDER.glob("*.j2"):
        (tmp_path / file.name).write_text(file.read_text())
    profile, point, request = parts("rcc", 3)
    mine = dataclasses.replace(profile, template=str(tmp_path / "base.sh.j2"))
    launch = by_hand(mine, point)
    named: dict[tuple[str, int], list[str]] = {}
    for line in render_marked(mine, point, request, launch):
        for place in line.places:
            named.setdefault((place.file, place.line), []).append(line.text)
    assert len(named) > 30
    for (name, at), texts in named.items():
        file, text = Path(name), Path(name).read_text()
        file.write_text(edited(text, at))
        try:
            lines = render(mine, point, request, launch).split("\n")
            assert not any(text and text in lines for text in texts), (name, at)
        except UsageError:  # a tag, or a value's name, is what the `@` broke: it is this line that is used
            pass
        file.write_text(text)


def test_the_block_of_ones_own_template(tmp_path: Path) -> None:
    """A line of a block that a site overrides is of the site's file."""
    template = tmp_path / "mine.sh.j2"
    template.write_text('{% extends "base.sh.j2" %}\n{% block teardown %}\n{{ super() }}echo bye\n{% endblock %}\n')
    profile, point, request = parts("rcc")
    lines = render_marked(dataclasses.replace(profile, template=str(template)), point, request, SUBMITTED)
    (bye,) = (line for line in lines if line.text == "echo bye")
    assert [(place.file, place.line, place.block) for place in bye.places] == [(str(template), 3, "teardown")]
    assert lines[2].places[0].file == str(FOLDER / "base.sh.j2")
