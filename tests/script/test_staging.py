"""What scripts do for copies of data on the nodes' own disks."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.script.lint import lint_script
from hpcddp.script.render import disk_folders, removal, render
from tests.given_one_allocation import batch_of, submission_plan
from tests.script.test_render import SUBMITTED, plain_profile


def point() -> Point:
    data = Data(name="bigmnist", root="/data", stage="tmpdir")
    return Point(cluster="rcc", workload=Workload(model="mnist-cnn", data=data), layout=Layout(node_type="v100"))


def with_disk(path: str | None, per_job: bool | None = None) -> ClusterProfile:
    profile = load_profile("rcc")
    node = replace(profile.node_types["v100"], local_disk_path=path, local_disk_per_job=per_job)
    return replace(profile, node_types={"v100": node})


@pytest.mark.parametrize(
    "disk_of",
    [(None, {"SLURM_TMPDIR": "DISK"}), (None, {"TMPDIR": "DISK"}), ("$MY_DISK/a 'b", {"MY_DISK": "DISK"})],
    ids=["slurm", "tmpdir", "profile"],
)
@pytest.mark.parametrize(
    ("job", "own", "others"),
    [
        ({"SLURM_JOB_ID": "12"}, ["12-gn01", "12-gn01.lock", "12+3-gn01"], ["123-gn01", "1-gn01", "11_12-gn01"]),
        (
            {"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "7"},
            ["12_7-gn01", "12_7-gn01.lock"],
            ["12_8-gn01", "12_71-gn01", "14-gn01", "12-gn01"],
        ),
    ],
    ids=["job", "task"],
)
def test_copies_of_the_job_are_removed_and_no_others(
    tmp_path: Path, disk_of: tuple[str | None, dict[str, str]], job: dict[str, str], own: list[str], others: list[str]
) -> None:
    """By its number: another job of the same user may have copies beside them."""
    disk, (path, env) = tmp_path / "a 'b", disk_of
    for name in [*own, *others]:
        (disk / f"hpcddp-stage-{os.getuid()}-{name}" / "deeper").mkdir(parents=True)
    given = {name: value.replace("DISK", str(tmp_path if path else disk)) for name, value in env.items()}
    text = removal(with_disk(path), point())
    assert text is not None
    subprocess.run(["bash", "-euc", text], env={"PATH": os.environ["PATH"], **given, **job}, check=True)
    assert {each.name for each in disk.iterdir()} == {f"hpcddp-stage-{os.getuid()}-{name}" for name in others}


def test_nothing_is_removed_that_goes_with_the_job() -> None:
    """Of a disk of which that is not known, too."""
    assert removal(with_disk("/disk", per_job=True), point()) is None
    assert removal(with_disk("/disk", per_job=False), point()) == removal(with_disk("/disk"), point())


def test_a_container_is_shown_the_disk() -> None:
    """As the profile has it, or where Slurm may have made a folder for the job; /tmp is the runtime's matter."""
    assert disk_folders(with_disk("/disk"), point()) == ("/disk",)
    assert disk_folders(with_disk(None), point()) == ("$SLURM_TMPDIR", "$TMPDIR")


def test_the_script_is_a_good_one() -> None:
    """It removes copies only where the run failed."""
    profile, plain, request = plain_profile()
    nodes = {name: replace(node, local_disk_per_job=None) for name, node in profile.node_types.items()}
    profile = replace(profile, node_types=nodes)
    staged = replace(plain, workload=replace(plain.workload, data=replace(plain.workload.data, stage="tmpdir")))
    text = render(profile, staged, request, SUBMITTED)
    assert lint_script(text) == []
    removed = [line for line in text.splitlines() if "hpcddp-stage" in line]
    assert [line.startswith('[ "$rc" = 0 ] || srun --nodes=') for line in removed] == [True]
    assert "hpcddp-stage" not in render(profile, plain, request, SUBMITTED)


@pytest.mark.parametrize("stage", ["none", "tmpdir"])
def test_runs_of_one_allocation_share_a_copy(tmp_path: Path, stage: str) -> None:
    """The script tells them to leave it, and removes it whatever became of them; without copies it says nothing of them."""
    plan = submission_plan(
        tmp_path, "repeat=1", "workload.data.name=bigmnist", "workload.data.root=/x", f"workload.data.stage={stage}"
    )
    nodes = {name: replace(node, local_disk_per_job=None) for name, node in plan.profile.node_types.items()}
    batch = batch_of(replace(plan, profile=replace(plan.profile, node_types=nodes)), tmp_path)
    prepare(tmp_path / "job", batch)
    text = (tmp_path / "job" / SCRIPT).read_text()
    assert lint_script(text) == []
    assert ("export HPCDDP_KEEP_COPIES=1" in text) is (stage == "tmpdir")
    assert (re.search(r"^srun --nodes=4 .*hpcddp-stage", text, re.MULTILINE) is not None) is (stage == "tmpdir")
