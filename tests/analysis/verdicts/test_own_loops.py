"""Advice on scripts of the user's own: what they can do, in their words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts import own_loops
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import find
from hpcddp.analysis.verdicts.own_loops import in_own_words, notes_in_own_words
from hpcddp.core.point import OwnScript, Point
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

FOLDER = Path(own_loops.__file__).parent


def _advice(source: str) -> set[str]:
    """As it will be read: strings joined, and a number for what is filled in."""
    joined = re.sub(r'"\s*\n\s*f?"', "", source).replace('\\"', '"').replace("{setting}", "workload.batch_per_gpu=64")
    return {re.sub(r"\{[^}]*\}", "8", text) for text in re.findall(r"`--set [^`]+`", joined)}


ADVICE = sorted(set[str]().union(*(_advice(file.read_text()) for file in FOLDER.glob("*.py") if file.stem != "own_loops")))
"""Every `--set` of verdicts and notes, as the sources have it."""

STARTED_BY_ITSELF = replace(point(1, 2), script=OwnScript(name="train.py"))
IN_SWEEP = point(1, 2, script="train.py")


def reworded(text: str, *points: Point) -> str:
    """The advice of a study with these points."""
    verdict = Verdict(name="stalls", where="at 1x2", evidence="", advice=text, numbers={}, runs=(), weight=1.0)
    return in_own_words([verdict], points)[0].advice


def test_there_is_advice_to_try() -> None:
    """Else the tests below would say nothing."""
    assert len(ADVICE) > 15


@pytest.mark.parametrize("text", ADVICE)
def test_what_no_sweep_has_cannot_be_set(text: str) -> None:
    """A script that was started by itself has no `--set`; hpcddp's own loops have it as it is."""
    assert "--set" not in reworded(text, STARTED_BY_ITSELF)
    assert reworded(text, point(1, 1)) == text
    assert reworded(text, point(1, 1), IN_SWEEP) == text


@pytest.mark.parametrize("text", ADVICE)
def test_what_the_script_decides_is_no_key_of_its_sweep(text: str) -> None:
    """Everything else is set as ever."""
    found = reworded(text, IN_SWEEP)
    assert "--set workload." not in found.partition("layout.")[0]
    if "workload." not in text and "measure.input" not in text:
        assert found == text


def test_in_its_words() -> None:
    """The line to change, where there is one."""
    steps = "`--set measure.steps=2100`, or `--set measure.stop=interval` to go on until it is known"
    by_itself = "`measure(..., steps=2100)`, or `measure.stop: interval` in a sweep of the script to go on until it is known"
    assert reworded(steps, STARTED_BY_ITSELF) == by_itself
    assert reworded("take `--set workload.loader_workers_per_rank=4`", IN_SWEEP) == "take `DataLoader(..., num_workers=4)`"
    several = "`--set measure.warmup_steps=500 --set measure.stop=seconds`"
    assert reworded(several, STARTED_BY_ITSELF) == "`measure.warmup_steps: 500, measure.stop: seconds` in a sweep of the script"
    note = "its spread is not known; `repeat: 6` or more gives a 95 % interval"
    assert notes_in_own_words([note], [STARTED_BY_ITSELF]) == [note.replace("`repeat: 6`", "starting it six times")]
    assert notes_in_own_words([note], [IN_SWEEP]) == [note]


def test_a_baseline_is_started_where_there_is_no_sweep(tmp_path: Path) -> None:
    """By hand, as the others were."""
    points = [replace(point(1, gpus), script=OwnScript(name="train.py")) for gpus in (2, 4)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_run(study, each, Recorded(step_ns=100 * MS))
    (missing,) = [verdict for verdict in find(load_study(study)).verdicts if verdict.name == "baseline missing"]
    assert missing.evidence.endswith("against one GPU: no such run is there")
    assert (
        missing.advice == "start the script on one node with `torchrun --nproc-per-node 1`, too, and its batch per rank as it is"
    )
