from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from hpcddp.core.point import Data, Measure, Point, Workload
from hpcddp.worker.launch_record import decoder_of, env_id, software, versions

PICTURES = Point(cluster="local", workload=Workload(model="resnet50", data=Data(name="imagenet")))


def named(decoder: str) -> Point:
    data = Data(name="imagenet", decoder=decoder)  # type: ignore[arg-type]
    return replace(PICTURES, workload=replace(PICTURES.workload, data=data))


def test_runs_with_different_decoders_are_never_pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each decoder is another software environment, and Pillow is the one of before there was a choice."""
    ids = {name: env_id(software(named(name)), "cpu") for name in ("simplejpeg", "pillow", "torchvision")}
    assert len(set(ids.values())) == 3
    assert ids["pillow"] == env_id(versions(), "cpu")
    assert env_id(software(PICTURES), "cpu") == ids["simplejpeg"]
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    assert env_id(software(PICTURES), "cpu") == ids["pillow"]


def test_what_decodes_no_pictures_has_no_decoder() -> None:
    """Other data sets, resident batches and benchmarks of collectives."""
    assert (decoder_of(PICTURES) or "").startswith("simplejpeg ")
    assert decoder_of(replace(PICTURES, measure=Measure(input="synthetic"))) is None
    assert decoder_of(replace(PICTURES, workload=replace(PICTURES.workload, data=Data(name="synthetic-imagenet")))) is None
    assert decoder_of(replace(PICTURES, work="comm")) is None


def test_the_decoder_is_part_of_the_id_where_it_is_named() -> None:
    """Left out it changes no id."""
    assert named("auto").id == PICTURES.id
    assert len({named(name).id for name in ("auto", "simplejpeg", "pillow", "torchvision")}) == 4
