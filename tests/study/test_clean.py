"""What `hpcddp clean` takes and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.study.clean import waste
from hpcddp.study.status import Phase, RunState

LABEL = "n01-g1-b1-0"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A run with two attempts of three checkpoints each, and two snapshots of code."""
    study = Study(tmp_path / "s")
    for number, job in enumerate(("7", "8")):
        for step in (1, 2, 3):
            write(study.attempt_dir(LABEL, 1, job, 0) / "checkpoints" / f"{10 * number + step:08d}.ab.pt", 100)
    for code in ("aa", "bb"):
        write(study.code / code / "bootstrap.py", 10)
        (study.code / code / "bootstrap.py").chmod(0o444)
    return study


def write(file: Path, count: int = 1) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(count))
    return file


def found(study: Study, phase: Phase, job: str | None = "8") -> list[str]:
    taken = waste(study, [RunState(label=LABEL, run=1, phase=phase, job=job)])
    return [one.path.relative_to(study.folder).as_posix().removeprefix(f"{LABEL}/r1/") for one in taken]


def script(study: Study, job: str, code: str) -> None:
    (study.jobs / "x").mkdir(parents=True)
    study.job_dir(job.partition("_")[0]).symlink_to("x")
    (study.jobs / "x" / "job.sbatch").write_text(f"srun python3 -u /moved/s/.code/{code}/bootstrap.py")


def test_all_checkpoints_of_a_run_that_is_done_go(study: Study) -> None:
    """Nothing resumes what is done; no snapshot is needed when nothing is left to run."""
    assert found(study, "done") == ["7.0/checkpoints", "8.0/checkpoints", ".code/aa", ".code/bb"]


@pytest.mark.parametrize("phase", ["failed", "missing"])
def test_a_run_that_is_not_done_keeps_what_it_would_go_on_from(study: Study, phase: Phase) -> None:
    """Its two newest checkpoints stay; older ones go, and what a killed rank left half-written."""
    write(study.attempt_dir(LABEL, 1, "8", 0) / "checkpoints" / ".00000014.ab.pt.99")
    assert found(study, phase)[:-2] == [
        *(f"7.0/checkpoints/0000000{step}.ab.pt" for step in (1, 2, 3)),
        "8.0/checkpoints/.00000014.ab.pt.99",
        "8.0/checkpoints/00000011.ab.pt",
    ]


def test_shards_stay_with_their_checkpoint(study: Study) -> None:
    """Those of an older one go."""
    folder = study.attempt_dir(LABEL, 1, "8", 0) / "checkpoints"
    for step in (11, 13):
        write(folder / f"000000{step}.shards" / "00000.ab.pt")
    assert "8.0/checkpoints/00000011.shards" in found(study, "failed")
    assert "8.0/checkpoints/00000013.shards" not in found(study, "failed")


def test_a_run_begun_anew_keeps_nothing_of_before(study: Study) -> None:
    """From checkpoints that are older than an end no submission goes on."""
    write_json(study.attempt_dir(LABEL, 1, "8", 0) / "end.json", {"state": "done"})
    assert len(found(study, "failed")) == 6 + 2


@pytest.mark.parametrize("phase", ["queued", "running", "unknown"])
def test_of_a_job_that_may_be_at_work_nothing_goes(study: Study, phase: Phase) -> None:
    """Its checkpoints and its code stay; other code goes only where it is known which this one's is."""
    assert found(study, phase) == []
    script(study, "8", "bb")
    assert found(study, phase) == [".code/aa"]
    assert found(study, phase, job="8_3") == [".code/aa"]
    assert found(study, phase, job=None) == []


def test_records_stay_and_bytes_are_counted(study: Study) -> None:
    """What is removed is what was listed; the attempt with its records is still there."""
    end = study.attempt_dir(LABEL, 1, "7", 0) / "end.json"
    write_json(end, {"state": "done"})
    taken = waste(study, [RunState(label=LABEL, run=1, phase="done", job="8")])
    assert [one.bytes for one in taken] == [300, 300, 10, 10]
    for one in taken:
        one.remove()
    assert waste(study, [RunState(label=LABEL, run=1, phase="done", job="8")]) == []
    assert json.loads(end.read_text()) == {"state": "done"}


def test_what_a_link_leads_to_is_not_the_studys(study: Study, tmp_path: Path) -> None:
    """A checkpoint folder or snapshot that is a link to elsewhere is left alone."""
    precious = write(tmp_path / "elsewhere" / "precious").parent
    (study.attempt_dir(LABEL, 1, "9", 0)).mkdir()
    (study.attempt_dir(LABEL, 1, "9", 0) / "checkpoints").symlink_to(precious)
    (study.code / "cc").symlink_to(precious)
    assert found(study, "done") == ["7.0/checkpoints", "8.0/checkpoints", ".code/aa", ".code/bb"]
