"""docs/data.md says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from hpcddp.analysis.verdicts.context import FASTER, INPUT_SHARE
from hpcddp.analysis.verdicts.gates import DAMAGED_SHARE
from hpcddp.analysis.verdicts.input import BUSY, CORES_WAITED, MOSTLY, LoaderLimit
from hpcddp.analysis.verdicts.verdicts import ALL
from hpcddp.core.attempt_records import TrainingEnd
from hpcddp.core.catalog import DATASETS, IMAGENET
from hpcddp.core.loader_record import LoaderTimes
from hpcddp.core.point import Data, Point, flat_keys
from hpcddp.data.batches.loading import USUAL
from hpcddp.data.bigmnist.manifest import MANIFEST as BIGMNIST
from hpcddp.data.digits import FILES
from hpcddp.data.pictures.decoders import DECODERS, EIGHTHS, MOST_PIXELS
from hpcddp.data.pictures.image_folder import FOLDERS
from hpcddp.data.pictures.tar_shards import TAR_MANIFEST, index_file, member_name
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
        f"`{TAR_MANIFEST}`",
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


def test_limits_are_those_that_are_named() -> None:
    """Each with a row, by the thresholds of the code."""
    rows = re.findall(r"^\| ([a-z -]+) \| .* \| .* \|$", PAGE.partition("## What limits where")[2], re.MULTILINE)
    assert set(rows) - {"limit"} == set(get_args(LoaderLimit))
    assert (INPUT_SHARE, BUSY, CORES_WAITED, MOSTLY) == (0.1, 0.8, 0.2, 0.5)  # a tenth, 80 %, a fifth, half
    assert (FASTER, USUAL) == (0.1, 2)  # 10 %; two batches


def test_fields_of_end_json_exist() -> None:
    """Of loaders and of damaged pictures."""
    assert "`samples_per_s`" in PAGE
    assert {"loader", "damaged"} <= {field.name for field in fields(TrainingEnd)}
    assert "samples_per_s" in {field.name for field in fields(LoaderTimes)}
