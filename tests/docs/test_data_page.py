"""docs/data.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from hpcddp.analysis.verdicts.damaged import DAMAGED_SHARE
from hpcddp.analysis.verdicts.verdicts import ALL
from hpcddp.cli import main
from hpcddp.core.catalog import DATASETS, IMAGENET
from hpcddp.core.point import Data, Point, flat_keys
from hpcddp.data.bigmnist import MANIFEST as BIGMNIST
from hpcddp.data.decoders import DECODERS, EIGHTHS, MOST_PIXELS
from hpcddp.data.image_folder import FOLDERS
from hpcddp.data.rgb_digits import FILES
from hpcddp.data.tar_shards import MANIFEST, index_file, member_name
from hpcddp.data.writing.pack import SAMPLES_PER_SHARD
from tests.worker import given

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_data_set_has_a_row() -> None:
    """Those that are read from disk by name, the synthetic ones in one row."""
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)(?:\.\.\.)?`", row)}
    assert named == {name if not name.startswith("synthetic-") else "synthetic-" for name in DATASETS}


def test_numbers_are_those_of_the_code() -> None:
    """Limits, sizes and names of files."""
    tar = Path("train-00000.tar")
    shards = -(-IMAGENET.train_samples // SAMPLES_PER_SHARD) + -(-IMAGENET.eval_samples // SAMPLES_PER_SHARD)
    for said in (
        f"{MOST_PIXELS:,}",
        f"{shards} tar files of {SAMPLES_PER_SHARD:,} pictures",
        f"`{member_name(0)}`",
        f"`{index_file(tar).name}`",
        f"`{MANIFEST}`",
        BIGMNIST,
        *FILES.values(),
        *(f"ROOT/{folder}/CLASS" for folder in FOLDERS.values()),
    ):
        assert said in " ".join(PAGE.split()), said
    assert (DAMAGED_SHARE, EIGHTHS) == (1e-3, (1, 2, 4))  # one in a thousand; an eighth, a quarter, half


def test_keys_values_and_verdicts_exist() -> None:
    """Whatever the page names in backticks of a sweep or a report."""
    known = flat_keys(given.point())
    keys = re.findall(r"`((?:workload|measure|layout)\.[a-z_.]+)", PAGE)
    assert keys
    assert set(keys) <= set(known)
    assert set(DECODERS) | {"auto"} == set(get_args(get_type_hints(Data)["decoder"]))
    assert all(f"`{name}`" in PAGE for name in ("auto", *DECODERS))
    assert set(re.findall(r"the verdict `([^`]+)`", PAGE)) <= set(ALL)
    assert isinstance(given.point(), Point)


@pytest.mark.parametrize("words", sorted(set(re.findall(r"hpcddp (data [a-z]+ [a-z0-9]+)((?: --[a-z]+)?)", PAGE))))
def test_commands_exist(words: tuple[str, str]) -> None:
    """With their options."""
    command: click.Command = main
    for word in words[0].split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    options = {option for parameter in command.params for option in parameter.opts}
    assert not words[1] or words[1].strip() in options
