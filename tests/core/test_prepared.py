"""What a login node sees of a data set by the names of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.catalog import DATASETS
from hpcddp.core.data_task import DataTask
from hpcddp.core.point import Data
from hpcddp.core.prepared import FILES, prepare_task, unprepared
from hpcddp.data import small_sets
from hpcddp.data.bigmnist import shards
from hpcddp.data.pictures import image_folder, tar_shards


def test_names_are_those_that_are_read() -> None:
    """Every set on disk has its files as its reader looks for them."""
    assert set(FILES) == {name for name in DATASETS if not name.startswith("synthetic-")}
    assert FILES["bigmnist"] == (shards.MANIFEST,)
    assert FILES["digits"] == (small_sets.DIGITS_FILES["train"],)
    assert FILES["imagenet"] == (tar_shards.TAR_MANIFEST, image_folder.FOLDERS["train"])
    first = small_sets.CIFAR10_FILES["train"][0]
    assert FILES["cifar10"] == (small_sets.ARCHIVE, first, f"{small_sets.FOLDER}/{first}")
    assert all(f"{small_sets.STEMS['train']}-images-idx3-ubyte" in name for name in FILES["mnist"])


@pytest.mark.parametrize("name", sorted(FILES))
def test_any_of_its_files_will_do(name: str, tmp_path: Path) -> None:
    """A folder without them says what to do, with the folder in it; one file by its name is enough not to judge."""
    found = unprepared(Data(name=name), tmp_path)
    assert found is not None
    assert (found.is_missing, str(tmp_path) in found.text, "ROOT" in found.text) == (True, True, False)
    for number, file in enumerate(FILES[name]):
        place = tmp_path / str(number) / file
        place.parent.mkdir(parents=True)
        place.write_text("?")
        assert unprepared(Data(name=name), tmp_path / str(number)) is None


def test_another_bigmnist_is_no_missing_one(tmp_path: Path) -> None:
    """It is named with both values, and nothing would be made there."""
    (tmp_path / "bigmnist.json").write_text('{"copies": 4, "variants": ["plain", "rotated"]}')
    same = Data(name="bigmnist", copies=4, variants=("plain", "rotated"))
    assert unprepared(same, tmp_path) is None
    for data, words in (
        (Data(name="bigmnist", copies=5, variants=("plain", "rotated")), "data.copies is 5, but the bigMNIST in"),
        (Data(name="bigmnist", copies=4, variants=("plain",)), "data.variants is plain, but the bigMNIST in"),
    ):
        found = unprepared(data, tmp_path)
        assert found is not None
        assert (found.is_missing, found.text.startswith(words)) == (False, True)


def test_each_form_needs_its_own(tmp_path: Path) -> None:
    """One copy on disk serves `virtual`, however often it is addressed, and the digits alone `augmented`."""
    (tmp_path / "bigmnist.json").write_text('{"copies": 1, "variants": ["plain", "rotated"]}')
    both = ("plain", "rotated")
    assert unprepared(Data(name="bigmnist", form="virtual", variants=both), tmp_path) is None
    assert unprepared(Data(name="bigmnist", form="augmented"), tmp_path) is None
    assert unprepared(Data(name="bigmnist", form="virtual"), tmp_path) is not None
    assert unprepared(Data(name="bigmnist", form="shards", variants=both), tmp_path) is not None
    options: dict[str, dict[str, object]] = {
        "virtual": {"copies": 1},
        "augmented": {"copies": 1, "variants": "plain"},
        "shards": {},
    }
    for form, wanted in options.items():
        task = prepare_task(Data(name="bigmnist", form=form), "r")  # type: ignore[arg-type]
        assert task is not None
        assert task.options == {"root": "r"} | wanted


def test_a_task_is_what_a_user_would_type() -> None:
    """What is the command's default is left out, so that both are the same task."""
    assert prepare_task(Data(name="bigmnist"), "$S/b") == DataTask(
        action="prepare", data="bigmnist", options={"root": "$S/b"}, folders=("root",)
    )
    small = prepare_task(Data(name="bigmnist", copies=2, variants=("plain",)), "b c")
    assert small is not None
    assert small.command == "hpcddp data prepare bigmnist --root 'b c' --copies 2 --variants plain"
    assert prepare_task(Data(name="imagenet"), "x") is None
