"""What the first screens say of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcddp.analysis.report.answer import Answer, answer_of
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, point, write_runs, write_study
from tests.analysis.verdict_studies import Model, write


def answer(study: Study) -> Answer:
    return answer_of(find(load_study(study, None)), study.folder)


def test_the_weightiest_verdict_is_named_with_its_share_and_its_command(tmp_path: Path) -> None:
    """40 % of the step is exposed on more than one rank."""
    assert answer(write(Model(seed=1, layouts=[(1, 1), (1, 4), (2, 4)], exposed=0.4), tmp_path)) == Answer(
        trained="resnet18 on synthetic-imagenet, batch 32/GPU, fp32, V100, marconi100",
        kind="weak",
        limits=("", "exchange", "exchange"),
        verdict="communication-bound",
        why="communication-bound at 1x4 and 2x4: 40 % of the step",
        next_step="hpcddp bench comm SWEEP.yaml",
        trust="12 of 12 runs pass; 3 runs each: ranges (6 give intervals)",
    )


def test_what_limits_comes_before_what_leaves_it_open(tmp_path: Path) -> None:
    """The doubt is the trust line's."""
    study = write(Model(seed=1, layouts=[(1, 1), (1, 4), (2, 4)], exposed=0.4), tmp_path)
    found = find(load_study(study, None))
    doubt = replace(found.verdicts[0], name="shared node", evidence="word " * 40, brief="")
    both = answer_of(replace(found, verdicts=[doubt, *found.verdicts]), study.folder)
    assert both.why == "communication-bound at 1x4 and 2x4: 40 % of the step"
    assert both.trust.endswith("; other jobs on the nodes")
    assert answer_of(replace(found, verdicts=[doubt]), study.folder).why == "shared node: other jobs on the nodes"


@pytest.mark.parametrize(("runs", "trust"), [(1, "1 run each: no spread (6 give intervals)"), (6, "95 % intervals within 0.5 %")])
def test_a_sound_study_is_trusted_by_its_runs(tmp_path: Path, runs: int, trust: str) -> None:
    sizes = [point(1, 1), point(1, 2), point(2, 2)]
    study = write_study(tmp_path / "s", sizes, repeat=runs + 1)
    for each in sizes:
        write_runs(study, each, [round(100 * MS + i * MS / 5) for i in range(runs)])
    found = answer(study)
    assert found.trust.startswith(f"{3 * runs} of {3 * runs} runs pass, 3 missing; {trust}")
    assert (found.kind, found.limits) == ("weak", ("", "", ""))


def test_before_the_first_run_the_next_step_is_status(tmp_path: Path) -> None:
    found = answer(write_study(tmp_path / "my study", [point(1, 1), point(2, 1)]))
    assert (found.why, found.trust) == ("", "no run of 2 has finished")
    assert found.next_step == f"hpcddp status '{tmp_path / 'my study'}'"
