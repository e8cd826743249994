"""What a study compares with: noisy, missing or faster baselines, other hardware or software; its own figures; predictions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from hpcddp.analysis.records.json_files import VERSIONED
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.effects import ratio
from hpcddp.analysis.study.series import as_planned, same_workload
from hpcddp.analysis.util.wording import capital, more_runs, percent, quantity, unit, units
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.binding import cores_of, shared, starved_share
from hpcddp.analysis.verdicts.context import (
    AGAIN,
    DOUBTFUL,
    LIMITED,
    Advice,
    Case,
    PointRow,
    Set,
    Verdict,
    layout,
    phrase,
    run_numbers,
)
from hpcddp.analysis.verdicts.gates import CLOCKS, disturbed_by_others
from hpcddp.analysis.verdicts.steps import begins_slowly, stalled_share
from hpcddp.core.prediction import PredictedPoint
from hpcddp.core.run_root import RunKey
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count

NOISY_FROM = 0.05
"""Width of a baseline's interval or range as a share of its median: six runs with a deviation of 1 % stay below."""

ABOVE_PERFECT = 0.05
"""Efficiency above 1 from which on the baseline is suspect: less is noise of a baseline."""

CONTRADICT = 0.05
"""Share of an epoch's time: rows of epochs are rank 0's and the rate is of all ranks, which differ by less than a step."""

ONE_EPOCH = (
    "Raise `measure.epochs`, or lower `measure.warmup_steps`. No epoch begins after the warm-up, so the rate lacks the wait "
    "for an epoch's first batch."
)
UNLIKE = "Look for a rank that is unlike rank 0 in the figure of ranks."

INHERITED = "Speedups inherit this uncertainty."

NOISY_ALWAYS = 0.20
"""Width from which on a baseline is noisy in any case: a speedup of 7 may then be one of 6 or 8."""


def contradicting(case: Case) -> Iterator[Verdict]:
    """Trainings whose epoch takes one time by the rate, and another by the rows of epochs."""
    both = [(run, run.epoch_ns / 1e9, run.trained_ns / 1e9) for run in case.counting if run.epoch_ns and run.trained_ns]
    found = sorted((abs(by_rate_s / by_rows_s - 1), run.name, run, by_rate_s, by_rows_s) for run, by_rate_s, by_rows_s in both)
    apart = [each for each in found if each[0] > CONTRADICT]
    if apart:
        share, name, run, by_rate_s, by_rows_s = apart[-1]
        yield Verdict(
            where=f"in {len(apart)} of {len(case.counting)} runs",
            evidence=f"An epoch of {name} takes {quantity(by_rate_s)} s by its rate of {quantity(float(run.rate_per_s or 0))} "
            f"samples/s, and {quantity(by_rows_s)} s by `train_s` of epochs.csv.",
            todo=ONE_EPOCH if not any(run.timed_epochs) else UNLIKE,
            numbers={"epoch_s_by_rate": by_rate_s, "epoch_s_by_rows": by_rows_s},
            runs=context.run_names([each[2] for each in apart]),
            weight=DOUBTFUL + min(0.99, share),
        )


def noisy_baseline(case: Case) -> Iterator[Verdict]:
    """The runs of a baseline differ by more than what is claimed against it."""
    for place, row, share, larger in _baselines(case):
        effect = float((1 - larger[share]).abs().max())
        width = float((row["samples_per_s_high"] - row["samples_per_s_low"]) / row["samples_per_s"]) if row["n"] > 1 else 0.0
        if width <= NOISY_FROM or width <= min(effect, NOISY_ALWAYS):
            continue
        runs, n, given = case.runs_of(row), int(row["n"]), (quantity(row[f"samples_per_s_{end}"]) for end in ("low", "high"))
        claimed = f"The points are within {percent(effect)} of perfect scaling." if width > effect else INHERITED
        more = Set({"repeat": FEWEST if n < FEWEST else 2 * n})
        yield Verdict(
            where=place,
            evidence=f"{n} runs give {' to '.join(given)} samples/s "
            f"({row['interval']}), a width of {percent(width)} of the median ({run_numbers(runs)}). {claimed}",
            todo=phrase("Measure more runs on exclusive nodes with ", more, ". With `--to csv`, outliers.csv lists outliers."),
            numbers={"width": width, "effect": effect, "n": n},
            runs=context.run_names(runs),
            weight=DOUBTFUL + min(0.99, width),
        )


def suspect_baseline(case: Case) -> Iterator[Verdict]:
    """A baseline per GPU slower than larger points, beyond the spread of both: perfect scaling is not surpassed for nothing."""
    for place, row, share, larger in _baselines(case):
        sure = larger[f"{share}_low"].isna() | (larger[f"{share}_low"] > 1)
        above = larger[(larger[share] > 1 + ABOVE_PERFECT) & sure].sort_values(share, kind="stable")
        for _, most in above.tail(1).iterrows():
            runs, efficiency = case.runs_of(row), float(most[share])
            more = f", with {count(len(above) - 1, 'more point')} above 100 %" if len(above) > 1 else ""
            yield Verdict(
                where=place,
                evidence=f"{layout(most)} has {percent(efficiency)} efficiency against {layout(row)}, which is superlinear{more} "
                f"({run_numbers(runs)}).",
                todo=f"Check it for other jobs, low clocks, and data that only several nodes can hold in memory. {AGAIN}",
                numbers={"efficiency": efficiency},
                runs=context.run_names(runs),
                weight=DOUBTFUL + min(0.99, efficiency - 1),
            )


def _baselines(case: Case) -> Iterator[tuple[str, PointRow, str, pd.DataFrame]]:
    """Where each baseline is, its row, the column of efficiencies against it, and the larger points that have one."""
    for name, series in case.series:
        node = int(series["full_node_gpus"].iloc[0])
        for gpus, share in ({1: "efficiency_1gpu"} | {node: "efficiency_1node"}).items():  # the full node may be one GPU
            base = series[(series["nodes"] == 1) & (series["gpus_per_node"] == gpus)]
            larger = series[(series["gpus"] > gpus) & series[share].notna()]
            if len(base) and len(larger):
                yield context.where([base.iloc[0]], series, name), base.iloc[0], share, larger


def mixed_hardware(case: Case) -> Iterator[Verdict]:
    """One workload met several GPU types, though nobody asked for them: its points are not comparable with each other."""
    for runs in _of_one_workload(case):
        kinds = _by_kind({run.name: run.gpu for run in runs}, runs)
        inside = any(" + " in kind for kind in kinds)
        if len(kinds) > 1 or inside:
            why = "A job on several types is as slow as the slowest." if inside else "They are never pooled or compared."
            cluster = runs[0].point.cluster if runs[0].point else "NAME"
            types = f"(`hpcddp clusters show {cluster}` lists them)"
            todo = f"Request one type with `layout.node_type` {types}, and run `hpcddp submit SWEEP.yaml` again."
            yield _mix(kinds, f"Runs of one workload had several GPU types ({_met(kinds)}). {why}", todo)


def mixed_software(case: Case) -> Iterator[Verdict]:
    """Sizes of one workload ran with other versions of its software. Where each version has all sizes, that is a comparison."""
    for runs in _of_one_workload(case):
        name = next((name for name in VERSIONED if len({run.software.get(name) for run in runs}) > 1), None)
        kinds = _by_kind({run.name: f"{name} {run.software.get(name or '')}" for run in runs}, runs)
        if name and len({tuple(_layouts(each)) for each in kinds.values()}) > 1:
            todo = "Delete the runs with all versions but one (`POINT/rN`), and run `hpcddp submit SWEEP.yaml` again."
            evidence = f"Runs of one workload had several versions ({_met(kinds)}). They are never pooled or compared."
            yield _mix(kinds, evidence, todo)


def _of_one_workload(case: Case) -> Iterator[list[Run]]:
    """Runs that count of each workload, whatever GPU and software they met."""
    counting = case.table[case.table["state"] == "counts"]
    by_key = {run.key: run for run in case.counting}
    for _, rows in counting.groupby(counting["series"].map(as_planned), sort=True):
        keys = zip(rows["label"], rows["run"], strict=True)
        yield [run for key in keys if (run := by_key.get(RunKey(*key)))]


def _by_kind(kind_of: Mapping[str, str | None], runs: Sequence[Run]) -> dict[str, list[Run]]:
    kinds = sorted({kind for kind in kind_of.values() if kind})
    return {kind: [run for run in runs if kind_of[run.name] == kind] for kind in kinds}


def _mix(kinds: Mapping[str, Sequence[Run]], evidence: str, todo: str) -> Verdict:
    return Verdict(
        where=f"on {context.listed(list(kinds))}",
        evidence=evidence,
        todo=todo,
        numbers={"kinds": len(kinds)},
        runs=context.run_names([run for each in kinds.values() for run in each]),
        weight=DOUBTFUL + 0.995,
    )


def _met(kinds: Mapping[str, Sequence[Run]]) -> str:
    return "; ".join(f"{kind}: {context.listed(_layouts(runs))}" for kind, runs in kinds.items())


def _layouts(runs: Sequence[Run]) -> list[str]:
    sizes = sorted({(run.point.ranks, run.point.layout.nodes, run.point.layout.gpus_per_node) for run in runs if run.point})
    return [f"{nodes}x{each}" for _, nodes, each in sizes]


def baseline_missing(case: Case) -> Iterator[Verdict]:
    """A series that has no point on one GPU, or none on one full node, to compare with; not where no size varies."""
    for name, series in [] if case.is_of_one_size else case.several:
        row = series.iloc[0]
        node, gpu = int(row["full_node_gpus"]), unit(row["device"])
        wanted = {1: f"one {gpu}"} | ({node: f"one full node ({units(node, row['device'])})"} if node > 1 else {})
        for gpus, what in wanted.items():
            if not ((series["nodes"] == 1) & (series["gpus_per_node"] == gpus)).any():
                yield _missing(case, row, gpus, what, name)


def _missing(case: Case, row: PointRow, gpus: int, what: str, name: str) -> Verdict:
    of_size = [each for each in case.records.points if (each.layout.nodes, each.layout.gpus_per_node) == (1, gpus)]
    planned = [point.label for point in of_size if same_workload(row["series"], point, case.records.hold)]
    ended = [run for run in case.records.runs if run.label in planned and run.state != "missing"]
    if not planned:
        why, advice = _no_point(case.by_itself, gpus)
    elif not ended:
        why = f"No run of {planned[0]} is done."
        advice = "Run `hpcddp submit SWEEP.yaml` again. It submits what is missing."
    else:
        why, advice = _not_counted(ended)
    return Verdict(
        where=f"at 1x{gpus}{f' ({name})' if name else ''}",
        evidence=f"Speedup and efficiency against {what} are unknown. {why}",
        todo=advice,
        numbers={"gpus": gpus},
        runs=context.run_names(ended),
        weight=context.INCOMPLETE + (0.5 if planned else 0.1),
    )


def _no_point(by_itself: bool, gpus: int) -> tuple[str, str]:
    if by_itself:
        start = f"Start the script on one node with `torchrun --nproc-per-node {gpus}`, too"
        return "The study has no such run.", f"{start}, with the same batch per rank."
    axes = f"layout.nodes: [1], layout.gpus_per_node: [{gpus}]"
    return "The sweep has no such point.", f"Add the point to the sweep with `baseline: {{{axes}}}` under `points`."


def _not_counted(ended: Sequence[Run]) -> tuple[str, str]:
    """Why runs of a baseline that ended serve as none, and what to do: `hpcddp submit` alone does not run them again."""
    rejected = [run for run in ended if run.state == "rejected"]
    if not rejected:
        unlike = f"Run {ended[0].name} had another GPU or environment than the other points."
        return unlike, f"Give all points the same GPU and environment. {AGAIN}"
    more = more_runs(len(rejected), " (and {})")
    return f"Run {rejected[0].name} was rejected{more}: {rejected[0].reason}.", f"Fix the cause of the rejection. {AGAIN}"


COMPUTES = ("forward", "backward", "optimizer")

SLOWER = 0.05
"""Share of the step: runs of one size differ by less, and DDP's copies into buckets take less."""

EXPLAINS = 0.5
"""Share of what the step is longer: with less, something else holds the point back more."""

CLOCKS_FALL = 0.03
"""Share by which clocks or power of GPUs must be lower than at the baseline to be named."""


class Slower(NamedTuple):
    """Of one point against its baseline; times in ns a step of the median rank."""

    base: PointRow
    base_ns: float
    here_ns: float
    share: float
    """Of the step that computation is longer."""
    explains: float
    """Share of what the step is longer."""


def slower_computation(case: Case) -> Iterator[Verdict]:
    """A larger point computes more slowly than the smallest of its series."""
    for found in context.found_points(case, _slower):
        row, worst = found.rows[-1], found.values[-1]
        pairs = ((worst.here_ns, row), (worst.base_ns, worst.base))
        times = " and ".join(f"{quantity(ns / 1e6)} ms per step at {layout(each)}" for ns, each in pairs)
        yield found.verdict(
            evidence=f"Forward, backward and optimizer take {times}, at the same batch ({run_numbers(case.runs_of(row))}). "
            f"This difference explains {percent(worst.explains)} of the lost efficiency.",
            todo=_advice(case, worst.base, row),
            numbers={"slower": worst.here_ns / worst.base_ns - 1, "share": worst.share, "explains": worst.explains},
            weight=LIMITED + min(0.99, max(each.share for each in found.values)),
        )


def slower_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step by which its computation is longer than the baseline's; None where it is no cause."""
    found = _slower(case, row)
    return found.share if found else None


def _slower(case: Case, row: PointRow) -> Slower | None:
    """None where it is no major part of what is lost, by chance, or where another verdict says why."""
    base = next((each for _, each in case.points[case.points["series"] == row["series"]].iterrows()), row)
    runs, base_runs = case.runs_of(row), case.runs_of(base)
    if base["gpus"] >= row["gpus"] or base["batch_per_gpu"] != row["batch_per_gpu"] or _is_explained(case, row, runs):
        return None
    here, there = ([ns for run in each if (ns := _computes_ns(run)) is not None] for each in (runs, base_runs))
    if not here or not there:
        return None
    apart, here_ns, base_ns = ratio(here, there), statistics.median(here), statistics.median(there)
    steps_ns = [statistics.median(run.step_ns or 0.0 for run in each) for each in (runs, base_runs)]
    longer, share = steps_ns[0] - steps_ns[1], (here_ns - base_ns) / steps_ns[0]
    sure = apart.low is None or apart.low > 1
    if not sure or share < SLOWER or longer <= 0 or share * steps_ns[0] < EXPLAINS * longer:
        return None
    return Slower(base, base_ns, here_ns, share, min(1.0, share * steps_ns[0] / longer))


def _computes_ns(run: Run) -> float | None:
    """Of the median rank: one that is slow by itself is a straggler. None where waits for shards are in it."""
    found, sharded = run.part_ns or {}, run.point is not None and run.point.sharded
    known = [ns for part in COMPUTES if (ns := found.get(part)) is not None]
    if len(known) < len(COMPUTES) or (sharded and found.get("comm_exposed") is None):
        return None
    over = run.unevenness.part_over_ns if run.unevenness else {}
    return sum(known) - sum(statistics.fmean(over[part]) for part in COMPUTES if part in over)


def _is_explained(case: Case, row: PointRow, runs: list[Run]) -> bool:
    """By cores that lack or are shared, others on the node, warm-up, stalls, or clocks for which runs were rejected."""
    labels = {run.label for run in runs}
    hot = any(run.label in labels and run.signals and CLOCKS in run.signals.failed for run in case.records.runs)
    crowded = starved_share(case, row) is not None or stalled_share(case, row) is not None
    odd = [run for run in runs if disturbed_by_others(run) or begins_slowly(run) or shared(run)]
    return hot or crowded or 2 * len(odd) >= len(runs)


def _advice(case: Case, base: PointRow, row: PointRow) -> Advice:
    cores, more = (cores_of(case.runs_of(each)[0]) for each in (row, base))
    if row["device"] == "cuda":
        return _gpu_advice(case.runs_of(row), case.runs_of(base))
    if cores and more and cores < more:
        has = f". A rank has {cores:.3g} physical cores at {layout(row)} and {more:.3g} at {layout(base)}."
        return phrase("Compare points with equal cores per rank, with ", Set({context.CORES: int(cores)}), has)
    return (
        "Check in the table of bindings that each rank has its own cores. Ranks of a node share memory bandwidth, caches and "
        "turbo clocks. Measure memory bandwidth with `hpcddp submit SWEEP.yaml --preflight`."
    )


def _gpu_advice(runs: Sequence[Run], base_runs: Sequence[Run]) -> Advice:
    """With what telemetry says of clocks and power."""
    fell = []
    for name, measure in (("sm_mhz_median", "MHz"), ("power_w_mean", "W")):
        known = [[getattr(gpu, name) or 0 for run in each for gpu in run.readings.gpus] for each in (runs, base_runs)]
        here, there = (statistics.median(values or [0]) for values in known)
        if 0 < here < (1 - CLOCKS_FALL) * there:
            fell.append(f"{quantity(here)} {measure} instead of {quantity(there)}")
    if fell:
        return f"Ask the site for the GPUs' power cap and cooling. GPUs have {' and '.join(fell)}."
    if any(run.readings.gpus for run in runs):
        kernels = Set({"measure.profile_steps": 5})
        return phrase("Find the longer kernels with ", kernels, ". Clocks and power of the GPUs do not explain the difference.")
    telemetry = Set({"measure.telemetry_hz": 1})
    return phrase("Record clocks and power of the GPUs with ", telemetry, ". GPUs of a node may share a power cap.")


COMM, DATA, REST = "exposed communication", "waiting for data", "the rest of the step, mainly computation,"
GREW: Mapping[str, Advice] = {
    COMM: "Measure the link between nodes with `hpcddp bench comm SWEEP.yaml`. Late ranks lengthen exposed communication, too.",
    DATA: phrase("Time the loaders alone with ", Set({"measure.input": "io"}), ". More nodes may share one file system."),
    REST: "Measure the speed of each node with `hpcddp submit SWEEP.yaml --preflight`.",
}
"""Part of the step that made a point slower than predicted -> what to do; and what, where it is faster."""
FASTER = "Compare the profile's network with `hpcddp bench comm SWEEP.yaml`. Check the runs behind the prediction for other jobs."


def out_of_line(case: Case) -> Iterator[Verdict]:
    """Points whose median is outside the band that was predicted; those with one next step together."""
    for todo in (*GREW.values(), FASTER):
        for found in context.found_points(case, partial(_off, todo)):
            row, (share, part, here_s, then_s) = max(zip(found.rows, found.values, strict=True), key=lambda each: each[1][0])
            rate, low, high = (quantity(row[name]) for name in ("samples_per_s", "predicted_low", "predicted_high"))
            yield found.verdict(
                evidence=f"{layout(row)} reaches {rate} samples/s instead of {low} to {high} ({run_numbers(case.runs_of(row))}), "
                f"predicted from {row['predicted_from']}. {capital(part)} takes {quantity(1e3 * here_s)} ms per step instead of "
                f"{quantity(1e3 * then_s)} ms.",
                todo=todo,
                numbers={"off": share, "part_s": here_s, "predicted_part_s": then_s},
                weight=LIMITED + min(0.99, share),
            )


def _off(todo: Advice, case: Case, row: PointRow) -> tuple[float, str, float, float] | None:
    """By which share of its prediction a point is off, the part that grew most (of a faster one, shrank most), how long it takes
    and should take, seconds a step; None within the band, or with another next step."""
    found, rate = case.records.predicted.get(row["label"]), row["samples_per_s"]
    if found is None or row["predicted_low"] <= rate <= row["predicted_high"]:
        return None
    share = float(rate / row["predicted_samples_per_s"] - 1)
    parts: dict[str, tuple[Any, Any]] = {COMM: (row["comm_exposed_s"], _exposed_s(case, row, found))}
    parts[DATA] = row["data_wait_s"], found.waits_s
    known = {name: (float(here), float(then)) for name, (here, then) in parts.items() if pd.notna(here) and pd.notna(then)}
    step_s, then_s = context.step_s(row), float(row["global_batch"] / row["predicted_samples_per_s"])
    known[REST] = step_s - sum(here for here, _ in known.values()), then_s - sum(then for _, then in known.values())
    part = (max if share < 0 else min)(known, key=lambda name: known[name][0] - known[name][1])
    return (abs(share), part, *known[part]) if todo is (GREW[part] if share < 0 else FASTER) else None


def _exposed_s(case: Case, row: PointRow, found: PredictedPoint) -> float:
    """As predicted, with what ranks of the point behind it waited for within their node."""
    behind = case.points[(case.points["series"] == row["series"]) & (case.points["label"] == found.anchor)]
    had_s, more_s = float(behind["comm_exposed_s"].sum()), found.exposed_s or 0.0
    return had_s + more_s if (behind["nodes"] == 1).all() else max(had_s, more_s)
