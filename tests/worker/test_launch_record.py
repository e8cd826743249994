"""What launch.json says of processors and software."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from hpcddp.core.point import Data, Measure, Point, Workload
from hpcddp.worker.launch_record import cpu_name, decoder_of, env_id, software, versions

X86 = "processor\t: {n}\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon(R) Gold 6248\ncpu MHz\t\t: 2500\n\n"
POWER = "processor\t: {n}\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n\n"
ARM = "processor\t: {n}\nCPU implementer\t: %s\nCPU variant\t: 0x0\nCPU part\t: %s\nCPU revision\t: 0\n\n"


@pytest.mark.parametrize(
    ("core", "name"),
    [
        (X86, "Intel(R) Xeon(R) Gold 6248"),
        (POWER, "POWER9, altivec supported"),
        (ARM % ("0x41", "0xd4f"), "Neoverse-V2"),
        (ARM % ("0x41", "0xd0c"), "Neoverse-N1"),
        (ARM % ("0x46", "0x001"), "A64FX"),
        (ARM % ("0xc0", "0xac3"), "CPU implementer 0xc0, part 0xac3"),
        ("processor\t: {n}\nisa\t: rv64imafdc\n\n", None),
    ],
)
def test_each_architecture_has_a_name(core: str, name: str | None) -> None:
    """Arm has numbers: those of a core that is not in the table stand for its name."""
    assert cpu_name("".join(core.format(n=n) for n in range(2))) == name


PICTURES = Point(cluster="local", workload=Workload(model="resnet50", data=Data(name="imagenet")))


def named(decoder: str) -> Point:
    data = Data(name="imagenet", decoder=decoder)  # type: ignore[arg-type]
    return replace(PICTURES, workload=replace(PICTURES.workload, data=data))


def test_runs_with_different_decoders_are_never_pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {name: env_id(software(named(name)), "cpu") for name in ("simplejpeg", "pillow", "torchvision")}
    assert len(set(ids.values())) == 3
    assert ids["pillow"] == env_id(versions(), "cpu")
    assert env_id(software(PICTURES), "cpu") == ids["simplejpeg"]
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    assert env_id(software(PICTURES), "cpu") == ids["pillow"]


def test_what_decodes_no_pictures_has_no_decoder() -> None:
    assert (decoder_of(PICTURES) or "").startswith("simplejpeg ")
    assert decoder_of(replace(PICTURES, measure=Measure(input="synthetic"))) is None
    assert decoder_of(replace(PICTURES, workload=replace(PICTURES.workload, data=Data(name="synthetic-imagenet")))) is None
    assert decoder_of(replace(PICTURES, work="comm")) is None


def test_the_decoder_is_part_of_the_id_where_it_is_named() -> None:
    assert named("auto").id == PICTURES.id
    assert len({named(name).id for name in ("auto", "simplejpeg", "pillow", "torchvision")}) == 4
