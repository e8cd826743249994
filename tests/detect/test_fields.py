"""Values as Slurm writes them."""

from __future__ import annotations

import pytest

from hpcddp.detect.fields import NO_LIMIT, gpus, is_slice, limit, names, pairs, smallest, tres


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("gpu:v100:4", (("v100", 4),)),
        ("gpu:4", ((None, 4),)),
        ("gpu:4(S:0-1),shard:8", ((None, 4),)),
        ("gpu:tesla", (("tesla", 1),)),
        ("gpu", ((None, 1),)),
        ("gpu:a100:2(S:0,2),gpu:v100:6(S:1-3),shard:16", (("a100", 2), ("v100", 6))),
        ("gpu:a100_1g.5gb:7", (("a100_1g.5gb", 7),)),
        ("gpu:v100:0", ()),
        ("craynetwork:4,bandwidth:lustre:4K", ()),
        ("(null)", ()),
        ("", ()),
        (None, None),
    ],
)
def test_gpus_of_a_gres_text(gres: str | None, found: object) -> None:
    """Type and count; sockets in brackets and other resources are passed over, and nothing said is unknown."""
    assert gpus(gres) == found


@pytest.mark.parametrize(
    ("names", "slices"),
    [
        (("a100_1g.5gb", "1g.10gb", "1c.3g.20gb", "nvidia_h100_80gb_hbm3_1g.10gb", "1g.12gb+me", "a100-2g-10gb", "3g20gb"), True),
        (("mig-1g", "a100_mig", "a100mig"), True),
        ((None, "a100", "nvidia_a100-sxm4-80gb", "v100-16g", "v100_32gb", "h100_80gb_hbm3", "gtx1060_6gb", "tesla"), False),
    ],
)
def test_types_that_are_slices_of_gpus(names: tuple[str | None, ...], slices: bool) -> None:
    """MIG's profiles in the spellings of sites; the memory of a whole GPU is none."""
    assert {is_slice(name) for name in names} == {slices}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1-00:00:00", 1440),
        ("02:00:00", 120),
        ("UNLIMITED", NO_LIMIT),
        ("NONE", NO_LIMIT),
        ("", NO_LIMIT),
        ("16", 16),
        (None, None),
    ],
)
def test_limits_in_text(text: str | None, number: int | None) -> None:
    """Times are minutes; no limit is not the same as nothing said."""
    assert limit(text) == number


@pytest.mark.parametrize(
    ("limits", "found"),
    [((4, 8), 4), ((NO_LIMIT, 8), 8), ((None, 8), 8), ((NO_LIMIT, None), NO_LIMIT), ((None, None), None), ((), None)],
)
def test_the_smaller_limit_holds(limits: tuple[int | None, ...], found: int | None) -> None:
    """No limit and an unknown one do not hold; one that is unknown is not none."""
    assert smallest(*limits) == found


def test_the_first_of_a_repeated_key_counts() -> None:
    """Free text at the end of a line cannot change what stands before it."""
    assert pairs("NodeName=a Gres=gpu:4 Reason=see Gres=gpu:8")["Gres"] == "gpu:4"


def test_resources() -> None:
    """Counts by name; none of a text without any."""
    assert tres("node=2,gres/gpu=8,mem=100G") == {"node": 2, "gres/gpu": 8, "mem": 100}
    assert tres("") == {}


def test_names() -> None:
    """Text with commas."""
    assert names("a,b") == ("a", "b")
    assert names("(null)") == ()
    assert names(None) is None
