from __future__ import annotations

from typing import Any

from hpcddp.analysis.records.json_files import environment_names, launch_software, version_words
from hpcddp.core.launch_record import LaunchRecord

VERSIONS = {"hpcddp": "0.2.0", "python": "3.11.9", "nccl": "2.20.5", "torch": "2.3.0", "cuda": "12.1"}


def launch(**changes: Any) -> LaunchRecord:
    return LaunchRecord(**{"schema": 1, "point": "p", "ranks": 1, "gpus": (), "env_id": "e", "versions": VERSIONS, **changes})


def env_names(*launches: LaunchRecord) -> list[str]:
    return list(environment_names((f"id{i}", launch_software(each)) for i, each in enumerate(launches)).values())


def test_the_first_item_that_differs_names_an_environment() -> None:
    """torch before CUDA before the rest, and one is enough where it tells all apart."""
    newer = launch(versions=VERSIONS | {"torch": "2.5.1", "cuda": "12.4"})
    assert env_names(launch(), newer) == ["torch 2.3.0", "torch 2.5.1"]
    assert env_names(launch(), launch(versions=VERSIONS | {"python": "3.12.1"})) == ["Python 3.11.9", "Python 3.12.1"]
    jpeg = launch(versions=VERSIONS | {"decoder": "simplejpeg 1.7"})
    assert env_names(launch(), jpeg) == ["no decoder", "decoder simplejpeg 1.7"]
    assert env_names(launch(), launch(freed_memory="kept")) == ["no freed memory", "freed memory kept"]


def test_several_items_where_one_is_not_enough() -> None:
    newer = launch(versions=VERSIONS | {"torch": "2.5.1"})
    newest = launch(versions=VERSIONS | {"torch": "2.5.1", "nccl": "2.21.5"})
    expected = ["torch 2.3.0, NCCL 2.20.5", "torch 2.5.1, NCCL 2.20.5", "torch 2.5.1, NCCL 2.21.5"]
    assert env_names(launch(), newer, newest) == expected


def test_containers_and_modules_name_what_versions_do_not() -> None:
    boxes = [launch(environment={"APPTAINER_NAME": f"{each}.sif"}) for each in "ab"]
    assert env_names(*boxes) == ["APPTAINER_NAME a.sif", "APPTAINER_NAME b.sif"]
    mixed = [("x", launch_software(boxes[0])), ("y", launch_software(boxes[0])), ("y", launch_software(boxes[1]))]
    assert environment_names(mixed) == {"x": "environment x", "y": "environment y"}
    assert env_names(launch(environment={"SLURM_JOB_ID": "1"})) == ["environment id0"]


def test_versions_are_told_as_they_are_written() -> None:
    assert version_words(launch_software(launch(versions=VERSIONS | {"torchvision": None}, freed_memory="kept"))) == (
        "torch 2.3.0, CUDA 12.1, NCCL 2.20.5, Python 3.11.9, hpcddp 0.2.0"
    )
