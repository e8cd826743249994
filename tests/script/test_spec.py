"""What a script submitted by hand carries of its point and of the profile, as people read and change it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.settings import Settings
from hpcddp.core.jobspec import JobSpec, json_lines, spec_from_dict
from hpcddp.core.launch_record import ProfileFacts
from hpcddp.core.point import Point
from hpcddp.core.schema import SchemaError, decode, decode_record, encode
from hpcddp.script.render import render
from hpcddp.submit.scripts_by_hand import by_hand
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.script.test_render import JOBS, SWEEPS, parts
from tests.script.test_shipped_scripts import SITES, script_parts

SHIPPED = sorted(file.stem for file in JOBS.glob("*.yaml"))


def spec_of(text: str) -> JobSpec:
    assert max(map(len, text.splitlines())) <= 100
    return spec_from_dict(json.loads(text))


@pytest.mark.parametrize("sweep", SHIPPED)
def test_a_shipped_point_has_its_id_in_its_script(sweep: str) -> None:
    source = read_sweep(JOBS / f"{sweep}.yaml")
    profile = load_profile(source.sweep.cluster or "local")
    points = [planned.point for planned in expand(source, profile)]
    found = [spec_of(by_hand(profile, point, Settings(), JOBS).spec or "").point for point in points]
    assert (found, [each.id for each in found]) == (points, [each.id for each in points])


ODD: tuple[Any, ...] = (True, False, 7, 0.25, "odd 'é\"\n", ["7"], [7], {"A b": "=7"}, None)


def points_with_one_odd_value() -> list[Point]:
    """Each key of a point with each of the odd values that it takes."""
    found = []

    def vary(plain: dict[str, Any], place: dict[str, Any]) -> None:
        for key, value in list(place.items()):
            if isinstance(value, dict):
                vary(plain, value)
            for odd in ODD:
                place[key] = odd
                try:
                    found.append(decode(Point, plain))
                except SchemaError:
                    continue
            place[key] = value

    full = encode(parts("rcc", 3)[1], keep_later=True)
    vary(full, full)
    return found


def test_a_point_of_odd_values_has_its_id_in_its_script() -> None:
    points = points_with_one_odd_value()
    assert len(points) > 100
    for point in points:
        spec = JobSpec(point=point, study="$HPCDDP_RUNS/adhoc", data_root="a\n" * 99)
        found = spec_from_dict(json.loads(json_lines(encode(spec, keep_defaults=False))))
        assert (found, found.point.id) == (spec, point.id)


@pytest.mark.parametrize("cluster", SITES)
def test_readers_find_in_a_script_what_the_profile_has(cluster: str) -> None:
    """Worker and analysis read a profile as ProfileFacts: they get of the script's what they get of the whole one."""
    profile = load_profile(cluster)
    expected = decode_record(ProfileFacts, encode(profile))
    for name in profile.node_types:
        _, point, _, _ = script_parts(cluster, 1)
        point = replace(point, layout=replace(point.layout, node_type=name))
        facts = decode_record(ProfileFacts, spec_of(by_hand(profile, point, Settings(), Path()).spec or "").profile)
        assert facts == replace(expected, node_types={name: expected.node_types[name]})


@pytest.mark.parametrize("cluster", SITES)
@pytest.mark.parametrize("nodes", [1, 4])
def test_a_script_fits_a_screen(cluster: str, nodes: int) -> None:
    profile, point, request, _ = script_parts(cluster, nodes)
    text = render(profile, point, request, by_hand(profile, point, Settings(), Path()))
    assert max(map(len, text.splitlines())) <= 160
    assert (cluster, nodes) != ("rcc", 1) or len(text.splitlines()) <= 60


@pytest.mark.parametrize("cluster", SWEEPS)
def test_a_script_has_no_more_of_the_point_than_differs(cluster: str) -> None:
    profile, point, _ = parts(cluster)
    spec = json.loads(by_hand(profile, point, Settings(), Path()).spec or "")
    assert spec["point"] == encode(point, keep_defaults=False)
    assert set(spec) == {"point", "profile", "study"}
