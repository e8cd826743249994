"""`hpcddp init`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from tests.commands.conftest import Run


def test_lists_and_copies(run: Run, tmp_path: Path) -> None:
    """Without a name the shipped sweeps are listed; with one it is copied, never over a file."""
    assert "rcc-bigmnist" in run("init").stdout.split()
    assert run("init", "rcc-bigmnist").exit_code == 0
    (tmp_path / "rcc-bigmnist.yaml").write_text("mine")
    again = run("init", "rcc-bigmnist")
    assert again.exit_code == 2
    assert "already there" in again.stderr
    assert (tmp_path / "rcc-bigmnist.yaml").read_text() == "mine"


def test_a_script_in_the_way_leaves_no_sweep(run: Run, tmp_path: Path) -> None:
    """The next step is one that helps: another name in this folder would not."""
    (tmp_path / "train_lm.py").write_text("mine")
    result = run("init", "own-script", "-o", "b.yaml")
    assert (result.exit_code, "give -o a name in another folder" in result.stderr) == (2, True)
    assert [path.name for path in tmp_path.glob("*.*")] == ["train_lm.py"]
    (tmp_path / "train_lm.py").unlink()
    assert run("init", "own-script", "-o", "b.yaml").exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["b.yaml", "train_lm.py"]


def test_unknown_name(run: Run) -> None:
    """An unknown sweep is refused with the nearest one."""
    result = run("init", "rcc-bigmnits")
    assert result.exit_code == 2
    assert "did you mean `rcc-bigmnist`" in result.stderr


@pytest.mark.parametrize("cluster", profile_names())
def test_a_sweep_for_a_cluster_is_planned_unchanged(run: Run, cluster: str, tmp_path: Path) -> None:
    """For every shipped cluster: all its points are of sizes that the cluster gives, and those that it offers besides, too."""
    assert run("init", "--cluster", cluster, "-o", "mine.yaml").exit_code == 0
    planned = run("plan", "mine.yaml", "--format", "json")
    assert planned.exit_code == 0, planned.stderr
    profile, text = load_profile(cluster), (tmp_path / "mine.yaml").read_text()
    labels = {row["label"] for row in json.loads(planned.stdout)["points"]}
    most = profile.node_type(None).gpus or 2
    assert {f"n01-g{most}", "n01-g1"} <= {label.partition("-b")[0] for label in labels}
    (tmp_path / "mine.yaml").write_text(re.sub(r"^  # (breakdown|limits):", r"  \1:", text, flags=re.MULTILINE))
    more = run("plan", "mine.yaml", "--format", "json")
    assert more.exit_code == 0, more.stderr
    assert (len(json.loads(more.stdout)["points"]) > len(labels)) == (profile.backend == "slurm")


def test_sizes_end_where_the_cluster_does(run: Run, tmp_path: Path) -> None:
    """rcc has six nodes of four V100: 8 nodes are not offered; the other types are named."""
    run("init", "--cluster", "rcc")
    text = (tmp_path / "rcc-mnist-cnn.yaml").read_text()
    assert "  in-node: {layout.gpus_per_node: [1, 2, 4]}\n  nodes: {layout.nodes: [1, 2, 4]}\n" in text
    assert "# also a40: 2 nodes of 4 " in text


def test_a_workload_of_ones_own_choice(run: Run, tmp_path: Path) -> None:
    """MODEL/DATA takes the place of the profile's workload; a folder that is missing is said."""
    assert run("init", "--cluster", "rcc", "resnet18/cifar10").exit_code == 0
    text = (tmp_path / "rcc-resnet18.yaml").read_text()
    assert "model: resnet18 " in text
    assert re.search(r"data: \{name: cifar10\} +# its folder: `root:` here, or `data_roots` in your settings\n", text)


def test_a_profile_of_ones_own(run: Run, tmp_path: Path) -> None:
    """A file is named as the sweep will find it, a profile of the settings folder by its name."""
    for folder in (tmp_path, tmp_path / "config" / "hpcddp" / "clusters", tmp_path / "study"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mine.yaml").write_text("schema: 1\nname: mine\nextends: rcc\n")
    for cluster, named in (("./mine.yaml", "../mine.yaml"), ("study/mine.yaml", "./mine.yaml"), ("mine", "mine")):
        target = tmp_path / "study" / f"{cluster.replace('/', '-')}-sweep.yaml"
        assert run("init", "--cluster", cluster, "-o", target).exit_code == 0
        assert f"\ncluster: {named}\n" in target.read_text()
        assert run("plan", target).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "rcc", "resnet18"], "resnet18: with --cluster, write MODEL/DATA, such as resnet50/imagenet"),
        (["resnet18/cifar10"], "resnet18/cifar10: MODEL/DATA is for a cluster; give --cluster NAME, too"),
        (["--cluster", "rc"], "no cluster `rc` in clusters/; did you mean `rcc`?"),
        (["--cluster", "rcc", "resnet5/cifar10"], "no model `resnet5`; did you mean `resnet50`?"),
        (["--cluster", "rcc", "mnist-cnn/cifar10"], "model `mnist-cnn` takes images of 1 channel"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    """Each is refused, and no file is written."""
    refused = run("init", *arguments)
    assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    assert [file for file in tmp_path.iterdir() if file.suffix == ".yaml"] == []
