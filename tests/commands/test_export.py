"""`hpcddp export` as a user runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcddp.core.errors import FAILED, USAGE
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study

from .conftest import Run


def write_two(folder: Path) -> None:
    for name in ("a", "b"):
        study = write_study(folder / "jobs" / name, [point(1, 1)], repeat=2)
        write_run(study, point(1, 1), Recorded(step_ns=MS))


def test_every_study_is_written_and_the_next_command_named(run: Run, tmp_path: Path) -> None:
    write_two(tmp_path)
    done = run("export", "jobs", "--to", "tensorboard", "-o", "out")
    assert (done.exit_code, done.stdout) == (0, "2 runs in out: tensorboard --logdir out\n")
    assert done.stderr == "! left out: 2 runs that are not done\n"
    assert len(list((tmp_path / "out").glob(f"[ab]/{point(1, 1).label}/r1/events.out.tfevents.*"))) == 2


def test_a_run_of_which_nobody_knows_what_it_did_is_left_out(run: Run, tmp_path: Path) -> None:
    """And that is said."""
    points = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", points, repeat=1)
    for each in points:
        write_run(study, each, Recorded(step_ns=MS))
    study.point_file(points[0].label).write_text("{")
    done = run("export", "s", "--to", "tensorboard", "-o", "out")
    assert (done.exit_code, done.stdout) == (0, "1 run in out: tensorboard --logdir out\n")
    assert done.stderr == "! left out: 1 run whose point.json is damaged or missing; `hpcddp analyze` says which\n"


def test_a_bundle_is_exported_too(run: Run, tmp_path: Path) -> None:
    write_runs(write_study(tmp_path / "s", [point(1, 1)]), point(1, 1), [MS])
    run("bundle", "s")
    assert run("export", "s.tar.gz", "--to", "tensorboard", "-o", "out").exit_code == 0
    assert list((tmp_path / "out/s").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("folder", "output", "says"),
    [
        ("jobs", "jobs", "jobs is not empty; name a new folder"),
        ("config", "out", "no study in it"),
        ("waiting", "out", "no training run is done yet; `hpcddp status waiting`"),
    ],
)
def test_mistakes_are_named(run: Run, tmp_path: Path, folder: str, output: str, says: str) -> None:
    """Nothing is written."""
    write_two(tmp_path)
    write_study(tmp_path / "waiting", [point(1, 1)])
    (tmp_path / "config").mkdir()
    done = run("export", folder, "--to", "tensorboard", "-o", output)
    assert (done.exit_code, says in done.stderr) == (USAGE, True)
    assert not (tmp_path / "out").exists()


MODULES = {"tensorboard": "tensorboard.compat.proto.event_pb2", "wandb": "wandb"}


@pytest.mark.parametrize("target", MODULES)
def test_a_missing_library_ends_with_1(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """With the line that installs it."""
    write_two(tmp_path)
    module = MODULES[target]
    monkeypatch.setitem(sys.modules, module, None)
    done = run("export", "jobs", "--to", target, "-o", "out")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        FAILED,
        f"{module} is not installed here: pip install 'hpcddp[{target}]'",
    )
