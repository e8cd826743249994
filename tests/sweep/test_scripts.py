"""Sweeps whose loop is a script of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.submit.choose import choose_points
from hpcddp.submit.options import PointOptions
from hpcddp.submit.remarks import remarks
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep

ROOT = Path(__file__).parents[2]

SWEEP = """\
schema: 1
cluster: local
workload: {script: train.py, args: {depth: 12, lr: 0.1}}
layout: {gpus_per_node: 2}
device: cpu
"""


def written(folder: Path, text: str = SWEEP) -> Path:
    """The sweep, with its script beside it."""
    file = folder / "study.yaml"
    file.write_text(text)
    (folder / "train.py").write_text("")
    return file


def points(file: Path, *settings: str) -> list[Point]:
    """Of the sweep, with these values."""
    return [planned.point for planned in expand(read_sweep(file, settings), load_profile("local"))]


def test_a_scripts_loader_is_not_remarked_on(tmp_path: Path) -> None:
    """How many workers it has, no sweep says; hpcddp's own are more than the core that a rank is given."""
    profile, core = load_profile("local"), "layout.physical_cores_per_rank=1"
    script = expand(read_sweep(written(tmp_path), [core]), profile)
    built_in = expand(read_sweep(ROOT / "jobs/local-mnist.yaml", [core, "workload.loader_workers_per_rank=2"]), profile)
    assert not any("loader_workers" in text for text in remarks(profile, script))
    assert any("loader_workers" in text for text in remarks(profile, built_in))


def test_an_argument_is_an_axis(tmp_path: Path) -> None:
    """Beside those that stay as they are; conditions name it, and baselines have its value."""
    file = written(
        tmp_path,
        SWEEP + "points:\n  scale:\n    workload.args.depth: [6, 12, 24]\n    where: workload.args.depth <= 12\n"
        "    layout.gpus_per_node: [2, 4]\n",
    )
    found = [(point.gpus, dict(point.workload.args)) for point in points(file)]
    expected = [(gpus, {"depth": depth, "lr": 0.1}) for depth in (6, 12) for gpus in (2, 4)]
    assert found[:4] == expected
    assert sorted(str(args["depth"]) for gpus, args in found[4:] if gpus == 1) == ["12", "6"]


def test_samples_are_a_known_batch(tmp_path: Path) -> None:
    """In labels and totals; without them these are unknown."""
    file = written(tmp_path)
    (known,), (unknown,) = points(file, "workload.samples_per_step=16"), points(file)
    assert (known.label[:11], known.global_batch) == ("n01-g2-b16-", 32)
    assert (unknown.label[:14], unknown.workload.known_batch) == ("n01-g2-script-", None)


def test_the_work_of_all_ranks_may_stay_the_same(tmp_path: Path) -> None:
    """With `hold: global_batch` each rank's share follows, as of hpcddp's own workloads."""
    file = written(tmp_path, SWEEP + "hold: global_batch\npoints: {scale: {layout.gpus_per_node: [1, 2, 4]}}\n")
    assert [point.workload.samples_per_step for point in points(file, "workload.global_batch=64")] == [64, 32, 16]
    assert len(points(file)) == 3
    with pytest.raises(UsageError, match="leave one of them out"):
        points(file, "workload.global_batch=64", "workload.samples_per_step=64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{script: train.py, model: resnet18}",
            r"`script` is train.py, which has a model of its own: leave `model` out",
        ),
        ("{script: train.py, data: {name: mnist}}", "leave `data` out"),
        ("{model: resnet18}", "`data` is missing"),
        ("{data: {name: mnist}}", "`model` is missing"),
        ("{script: train.py, argz: {depth: 1}}", "unknown key `argz` in workload; did you mean `args`"),
    ],
)
def test_a_script_or_a_model(tmp_path: Path, text: str, message: str) -> None:
    """One of the two, with the file's line."""
    file = written(tmp_path, f"schema: 1\ncluster: local\nworkload: {text}\n")
    with pytest.raises(UsageError, match=rf"study.yaml:3.*{message}"):
        read_sweep(file)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    """Before anything else is asked; its path is from the sweep, wherever the user stands."""
    file = written(tmp_path)
    choose_points(file, PointOptions())
    (tmp_path / "train.py").unlink()
    with pytest.raises(UsageError, match=rf"study.yaml:3.*no file `train.py` in {tmp_path}"):
        choose_points(file, PointOptions())
