"""What a key changes: points equal in all else, beside each other, what is said of them, and `--by` that key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hpcddp.analysis.study.axes import Axis
from hpcddp.analysis.study.axis_words import effect_sentence, effect_sentences
from hpcddp.analysis.study.by_key import axis_of, by_plain, by_text
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, point, write_measured, write_runs, write_study

SPREAD = (-0.6, 0.2, 0.9, -0.3, 0.5, -0.8)
"""Per cent by which six runs differ from what they would be."""


def effects(
    folder: Path, steps_ms: Mapping[Point, float], runs: int = 6, wait: Mapping[Point, float] | None = None
) -> dict[str, Axis]:
    """Of a study in which a step of each point takes so long."""
    study = write_study(folder / "s", list(steps_ms), runs)
    for i, (each, ms) in enumerate(steps_ms.items()):
        times = [round(ms * MS * (1 + SPREAD[(run + i) % 6] / 100)) for run in range(runs)]
        shares = {"data_wait": (wait or {}).get(each, 0.0), "forward": 0.1, "backward": 0.2}
        write_runs(study, each, times, shares=shares, gpu=each.layout.node_type or "V100")
    return {axis.key: axis for axis in find(load_study(study)).effects}


def with_workers(steps_ms: Mapping[int, float]) -> dict[Point, float]:
    return {point(1, 4, loader_workers_per_rank=workers): ms for workers, ms in steps_ms.items()}


def ratios(axis: Axis) -> list[list[float]]:
    against = [[panel.against_base(value) for value in panel.values] for panel in axis.panels]
    return [[round(found.ratio, 1) if found else 1.0 for found in panel] for panel in against]


WORKERS = "workload.loader_workers_per_rank"


@pytest.mark.dear
def test_where_more_of_it_stops_paying(tmp_path: Path) -> None:
    """Four times as fast with eight workers as with one, and no faster with sixteen; why stands behind it."""
    points = with_workers({1: 400.0, 2: 200.0, 4: 110.0, 8: 100.0, 16: 99.0})
    found = effects(tmp_path, points, wait={each: 0.6 for each, ms in points.items() if ms == 400})
    (sentence,) = effect_sentences(found[WORKERS])
    assert sentence.startswith("At 1x4, workers 8 is 4.00 times (95 % 3.9")
    assert ". Values above 8 gain too little: 16 is 1.01 times" in sentence
    assert sentence.endswith(". Ranks wait for data during 60 % of the step at 1, and 0 % at 16.")
    assert ratios(found[WORKERS]) == [[0.5, 1.0, 1.8, 2.0, 2.0]], "against the default, 2"


@pytest.mark.dear
def test_what_still_pays_and_what_costs(tmp_path: Path) -> None:
    paying = effects(tmp_path / "a", with_workers({n: 400.0 / n for n in (1, 2, 4)}))
    assert "The largest value is still faster: 4 is 2.00 times" in effect_sentences(paying[WORKERS])[0]
    costing = effects(tmp_path / "b", with_workers({n: 100.0 * n for n in (1, 2, 4)}))
    assert "Larger values are slower: 4 is 0.25" in effect_sentences(costing[WORKERS])[0]


@pytest.mark.dear
def test_a_dip_between_values_is_named(tmp_path: Path) -> None:
    """The lowest of each; what falls or rises all the way has none, and noise makes none."""
    steps = {1: 200.0, 2: 100.0, 4: 140.0, 8: 130.0, 16: 70.0, 32: 70.2, 64: 70.0}
    found = effects(tmp_path, with_workers(steps))
    (sentence,) = effect_sentences(found[WORKERS])
    assert sentence.count("dip") == 1
    assert ". There is a dip: 4 is 0.714 times (95 % 0." in sentence
    assert ") as fast as 2 and 0.500 times (95 % " in sentence


def test_what_does_nothing_is_said_to_have_no_effect(tmp_path: Path) -> None:
    found = effects(tmp_path, {point(1, 4, channels_last=value): 100.0 for value in (False, True)})
    (sentence,) = effect_sentences(found["workload.channels_last"])
    assert sentence.startswith("At 1x4, channels last has no measurable effect: throughput is ")
    assert "times that with off (95 % 0.9" in sentence


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (([100 * MS] * 6, [995 * MS // 10] * 6), "changes throughput by less than 1 %: throughput is 1.005 times"),
        (([100 * MS + run for run in range(5)], [100 * MS, 100 * MS + 1]), " A value has 2 runs only. Set `repeat: 6`"),
    ],
    ids=["sure and hardly there", "few of one value"],
)
def test_what_is_said_is_of_the_effects_size_and_the_fewest_runs(
    tmp_path: Path, times: tuple[list[int], list[int]], says: str
) -> None:
    points = [point(1, 4, compile=value) for value in (False, True)]
    study = write_study(tmp_path / "s", points, len(times[0]))
    for each, of_runs in zip(points, times, strict=True):
        write_runs(study, each, of_runs)
    (axis,) = find(load_study(study)).effects
    assert says in effect_sentences(axis)[0]


@pytest.mark.parametrize(("runs", "says"), [(1, "has one run. Set `repeat: 6`"), (3, "not certain yet: only 3 runs each")])
def test_few_runs_claim_little(tmp_path: Path, runs: int, says: str) -> None:
    """Of one run each the numbers and no judgement; of three what differs by far more than they do."""
    found = effects(tmp_path, {point(1, 4, precision=value): ms for value, ms in (("fp32", 100.0), ("bf16", 50.0))}, runs)
    (sentence,) = effect_sentences(found["workload.precision"])
    assert re.search(r"bf16 is (1\.9[89]|2\.0\d) times", sentence)
    assert says in sentence


@pytest.mark.dear
def test_two_keys_at_once_are_a_panel_each(tmp_path: Path) -> None:
    """Never an average: of each key a panel for each value of the other and each size, and the ratio within it."""
    points = {
        point(1, gpus, batch_per_gpu=batch, precision=precision): batch * (1.0 if precision == "fp16" else factor)
        for gpus in (1, 4)
        for batch, factor in ((32, 2.0), (128, 4.0))
        for precision in ("fp32", "fp16")
    }
    found = effects(tmp_path, points)
    precision = found["workload.precision"]
    assert [panel.where for panel in precision.panels] == [f"1x{g}, batch/GPU {b}" for g in (1, 4) for b in (32, 128)]
    assert ratios(precision) == [[1.0, 2.0], [1.0, 4.0]] * 2
    assert len(found["workload.batch_per_gpu"].panels) == 4


def test_only_what_is_equal_in_all_else_is_compared(tmp_path: Path) -> None:
    """Two workers on one GPU are not put beside four on four, nor points of another batch: there is nothing to say."""
    points = [point(1, 1, loader_workers_per_rank=2), point(1, 4, loader_workers_per_rank=4)]
    assert effects(tmp_path, dict.fromkeys(points, 100.0)) == {}


def test_keys_that_change_together_are_one(tmp_path: Path) -> None:
    kinds = {"v100": 12, "a40": 24}
    points = {point(1, 4, node_type=kind, physical_cores_per_rank=cores): cores * 10.0 for kind, cores in kinds.items()}
    found = effects(tmp_path, points)
    assert list(found) == ["layout.node_type"]
    also = [value.also for value in found["layout.node_type"].panels[0].values]
    assert also == ["cores/rank 24, GPU a40", "cores/rank 12, GPU v100"]


@pytest.mark.dear
def test_the_base_is_what_most_points_have(tmp_path: Path) -> None:
    """Where other keys vary; of a tie the key's default, whatever its place."""
    workers = with_workers(dict.fromkeys((1, 2, 16), 100.0))
    batches = {point(1, 4, loader_workers_per_rank=16, batch_per_gpu=n): 100.0 for n in (8, 64)}
    (panel,) = effects(tmp_path, workers | batches)[WORKERS].panels
    assert panel.values[panel.base].text == "16"


def test_values_that_are_not_numbers_stand_against_the_base(tmp_path: Path) -> None:
    times: Sequence[tuple[str, float]] = (("fp32", 100.0), ("fp16", 50.0), ("bf16", 100.0))
    (axis,) = effects(tmp_path, {point(1, 4, precision=value): ms for value, ms in times}).values()
    sentence = effect_sentence(axis, axis.panels[0])
    assert "precision fp16 is 2.00 times" in sentence
    assert ". The value bf16 does not differ measurably from fp32" in sentence


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """fp32 at two sizes, fp16 at one, twice as fast; and many workers, each with a run."""
    sizes: dict[Point, Sequence[float]] = {point(nodes, 4, precision="fp32"): range(100, 106) for nodes in (1, 2)}
    sizes[point(2, 4, precision="fp16")] = [each / 2 for each in range(100, 106)]
    workers = {point(4, 4, loader_workers_per_rank=number): (100 + number,) for number in (0, 1, 4, 8, 16)}
    return write_measured(tmp_path / "s", {**sizes, **workers})


def test_a_line_per_size_and_a_column_per_value(study: Study) -> None:
    text = by_text(study, axis_of(study, "workload.precision"))
    head, row = (line.split() for line in text.splitlines()[2:4])
    assert head == ["nodes", "x", "GPUs", "base", "samples/s", "runs", "fp16"]
    assert row[:5] == ["2x4", "fp32", "2,498", "6", "2.00"]
    assert "(95 %" in text
    assert "At 2x4, precision fp16 is 2.00 times" in text
    (base, other) = by_plain(study, axis_of(study, "workload.precision"))["points"]
    assert (base["base"], base["ratio"], other["value"], other["ratio"]) == ("fp32", 1.0, "fp16", pytest.approx(2.0))


def test_one_run_has_no_interval_and_many_values_fit_the_line(study: Study) -> None:
    text = by_text(study, axis_of(study, "workload.loader_workers_per_rank"))
    assert max(map(len, text.splitlines())) <= 100
    assert [line.split()[6:] for line in text.splitlines() if "samples/s" in line] == [["1", "4", "8"], ["16"]]
    assert "%" not in text
    assert "Each value has one run. Set `repeat: 6`" in " ".join(text.split())


def test_a_key_that_no_points_differ_in_has_near_names(study: Study) -> None:
    with pytest.raises(UsageError, match=r"no points differ in `workload.precison` alone; did you mean `workload.precision`\?"):
        axis_of(study, "workload.precison")
