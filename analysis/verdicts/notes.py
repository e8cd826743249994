"""What a reader must know besides the numbers and verdicts: what was not pooled, what slows down, what a spread is."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import capital, more_runs, quantity
from hpcddp.analysis.verdicts.context import WORKERS, Advice, Set, phrase
from hpcddp.core.catalog import DIGITS
from hpcddp.core.preflight import PreflightRecord, preflight_words
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count, duration, size, thousands
from hpcddp.core.transport_record import transport_words

VAGUE_CLOCK = 0.02
"""Share of the step that an error of clocks may reach before a note says so."""

WARMUP_DETECTED_FROM = 100
"""Steps, warm-up included, below which worker/training/stop_rule.py does not look for the end of the warm-up."""

OTHER_STEP = 0.05
"""A step that differs by more than this share is not the same step: the hook costs microseconds."""

LONG_START_S = 60
"""torch is imported in 2 to 5 s from a local disk, in 10 to 40 s from a shared file system."""

NETWORKS_SHOWN = 3
GROWS = "workload.optimizer.batch_at_epochs"
APART = {"env_id": "software environments", "layout.node_type": "node types"}


def notes(scaling: pd.DataFrame) -> list[Advice]:
    """All notes on a scaling table, each a sentence."""
    return [*apart_notes(scaling), *batch_notes(scaling), *hook_notes(scaling), *spread_notes(scaling)]


def apart_notes(scaling: pd.DataFrame) -> Iterator[str]:
    """GPUs, environments and the like that were found in several kinds: these are separate series, never averaged."""
    for key, what in APART.items():
        kinds = sorted({json.loads(series).get(key) or "unknown" for series in scaling["series"]})
        if len(kinds) > 1:
            yield f"{len(kinds)} {what} ({', '.join(kinds)}) form separate series. They are never averaged or compared."


def batch_notes(scaling: pd.DataFrame) -> Iterator[str]:
    """What is of all steps, and what of one batch, where it grows."""
    growing = sum(bool(json.loads(series).get(GROWS)) for series in scaling["series"])
    if growing:
        which = "every row" if growing == len(scaling) else f"{growing} of {len(scaling)} rows"
        yield (
            f"The batch of {which} grows (batch_at_epochs). Throughput and the parts of the step cover all timed steps. "
            f"The spread of steps covers the most frequent batch."
        )


def hook_notes(scaling: pd.DataFrame) -> Iterator[str]:
    """Throughput that the communication hook may have lowered, and breakdowns of steps that differ from those without it."""
    hooked = int(scaling["hook"].sum())
    if hooked:
        which = "every row" if hooked == len(scaling) else f"{hooked} of {len(scaling)} rows"
        yield f"Throughput of {which} comes from runs with the communication hook. Add runs without it with `measure.comm: off`."
    both = scaling[~scaling["hook"] & scaling["step_hook_s"].notna()]
    odd = both.assign(change=(both["step_hook_s"] / both["step_s"] - 1).abs()).sort_values("change").tail(1)
    for _, row in odd[odd["change"] > OTHER_STEP].iterrows():
        hook_ms, step_ms = quantity(row["step_hook_s"] * 1e3), quantity(row["step_s"] * 1e3)
        yield (
            f"The step of {row['breakdown_label']} lasts {hook_ms} ms with the communication hook and {step_ms} ms without. "
            f"Its breakdown does not describe the throughput beside it."
        )


def spread_notes(scaling: pd.DataFrame) -> Iterator[Advice]:
    """What the spread stands for."""
    if len(scaling) and (scaling["n"] == 1).all():
        yield phrase("Each point has one run, so its spread is unknown. Measure more with ", Set({"repeat": FEWEST}), ".")
    elif set(scaling["interval"].dropna()) == {"95 %", "range"}:
        yield "Spread is the 95 % interval of the median from n = 6 on, and the range of the runs below that."


def clock_notes(runs: pd.DataFrame) -> Iterator[str]:
    """How well the clocks of runs' ranks are known."""
    counting = runs[runs["state"] == "counts"]
    vague = counting[counting["clock_error_s"] * 1e9 > VAGUE_CLOCK * counting["step_ns"]]
    if len(vague):
        error_ms = quantity(vague["clock_error_s"].max() * 1e3)
        yield (
            f"The ranks' clocks are known to {error_ms} ms only in {len(vague)} of {len(counting)} runs. Transfer and "
            f"synchronization wait of these runs are uncertain by that time."
        )


def window_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Runs whose ranks took different times for the same steps, with the times of the worst run."""
    apart = [(run, run.windows_apart) for run in runs if run.state == "counts" and run.windows_apart]
    if apart:
        run, (least_ns, most_ns) = max(apart, key=lambda found: found[1][1] / found[1][0])
        more = more_runs(len(apart), " The same holds for {}.")
        yield (
            f"The timed steps of {run.name} took its ranks from {quantity(least_ns / 1e9)} to {quantity(most_ns / 1e9)} s.{more} "
            f"Ranks that wait for each other differ by less than a step. The rate comes from their mean. Find a rank that "
            f"exchanges no gradients, or whose clock is wrong."
        )


def warmup_notes(runs: Sequence[Run]) -> Iterator[Advice]:
    """Runs that looked for the end of their warm-up and did not find it, which does not mean that there was none."""
    looked = [run for run in runs if run.state == "counts" and run.trains and run.stopped_by is not None]
    unseen = [run for run in looked if run.warmup_detected_steps is None]
    few = [run for run in unseen if _made_steps(run) < WARMUP_DETECTED_FROM]
    late = [run for run in unseen if run not in few]
    unknown, of = "The end of the warm-up is unknown in", f"of {count(len(looked), 'run')}"
    if few:
        why = f"It cannot be detected in fewer than {WARMUP_DETECTED_FROM} steps."
        more = Set({"measure.steps": WARMUP_DETECTED_FROM})
        yield phrase(f"{unknown} {len(few)} {of}. {why} Time more steps with ", more, ".")
    if late:
        longer = max(map(_made_steps, late))
        why = "Their steps reach steady state in the second half, if at all."
        warmup, steps = Set({"measure.warmup_steps": longer}), Set({"measure.steps": 4 * longer})
        found = f"{unknown} {len(late)} {of} ({late[0].name}). {why}"
        yield phrase(f"{found} Lengthen the warm-up with ", warmup, ", or time more steps with ", steps, ".")


def _made_steps(run: Run) -> int:
    return (run.steady_steps or 0) + (run.point.measure.warmup_steps if run.point else 0)


def start_notes(runs: Sequence[Run]) -> Iterator[str]:
    """How long runs took until their first step, and what shortens it where that is long."""
    known = [run.start_up for run in runs if run.state == "counts" and run.start_up]
    if not known:
        return
    firsts = sorted(each.until_first_step_s for each in known)
    middle, met = statistics.median(firsts), statistics.median(each.until_met_s for each in known)
    spread = f" ({duration(firsts[0])} to {duration(firsts[-1])}, median of {len(firsts)} runs)" if len(firsts) > 1 else ""
    long = " Imports from a parallel file system may take that long." if met > LONG_START_S else ""
    yield f"The first step came {duration(middle)} after srun{spread}. Rendezvous completed {duration(met)} after srun.{long}"


def check_notes(runs: pd.DataFrame) -> Iterator[str]:
    """Whether runs with `comm: check` agree with their breakdown."""
    counting = runs[runs["state"] == "counts"]
    checked = counting[counting["comm_check_closes"].notna()]
    for _, run in checked[~checked["comm_check_closes"].astype(bool)].iterrows():
        yield f"Run r{run['run']} of {run['label']}: {run['comm_check']}."
    if len(checked) and checked["comm_check_closes"].all():
        yield f"Step clock, difference and profiler agree on communication in {len(checked)} of {len(checked)} runs."


def network_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Over what ranks exchanged, of several nodes first; of one node only where they have GPUs."""
    counting = [run for run in runs if run.state == "counts" and run.point and run.network]
    words: dict[str, list[int]] = {}
    for run in sorted(counting, key=lambda run: -run.point.layout.nodes if run.point else 0):
        if run.point and run.network and (run.gpu or run.point.layout.nodes > 1):
            words.setdefault(transport_words(run.network.transport), []).append(run.point.layout.nodes)
    for text, nodes in list(words.items())[:NETWORKS_SHOWN]:
        sizes = f"{min(nodes)} to {max(nodes)} nodes" if min(nodes) < max(nodes) else count(nodes[0], "node")
        yield f"Ranks on {sizes} use {text}."


def restart_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Of which attempts runs consist that count and were interrupted."""
    counting = [run for run in runs if run.state == "counts"]
    resumed = [run for run in counting if run.restarts]
    if resumed:
        most = max(resumed, key=lambda run: run.restarts)
        yield (
            f"{len(resumed)} of {count(len(counting), 'run')} resumed after a restart ({most.name} after {most.restarts}). Their "
            f"times cover all attempts, without each attempt's warm-up and without repeated steps. Node hours here cover "
            f"training alone. List the cost of all attempts with `sacct --duplicates`."
        )
    for run in (run for run in resumed if run.lost_steps):
        yield f"The times of {run.name} lack {count(run.lost_steps, 'step')} whose records are lost."


def preflight_notes(records: Sequence[PreflightRecord]) -> list[str]:
    """What the newest one found, in a line."""
    return [f"Preflight of job {records[-1].job}: {preflight_words(records[-1])}."] if records else []


def data_notes(runs: Sequence[Run]) -> Iterator[str]:
    """One note for each stand-in, and for each data set with other files: rates are of images of that shape."""
    counting = [run for run in runs if run.state == "counts" and run.point and run.trains]
    for stand_in, meant in (("digits", "CIFAR-10"), ("bigmnist", "MNIST")):
        found = [run for run in counting if stand_in == _stand_in(run)]
        if found:
            total = DIGITS.train_samples + DIGITS.eval_samples
            yield (
                f"{count(len(found), 'run')} trained on scikit-learn's {thousands(total)} handwritten digits in the shape of "
                f"{meant}'s images, not on {meant}. Rates apply to images of that shape, accuracies to digits."
            )
    for name in sorted({run.point.workload.data.name for run in counting if run.point and run.unofficial}):
        found = [run for run in counting if run.unofficial and run.point and run.point.workload.data.name == name]
        files = sorted({file for run in found for file in run.unofficial})
        more = f" and {len(files) - 1} more" if files[1:] else ""
        yield (
            f"{count(len(found), 'run')} trained on files of {name} that are not its publisher's, by size or checksum ({files[0]}"
            f"{more}). Rates apply to images of that shape, accuracies to other data."
        )


def _stand_in(run: Run) -> str | None:
    """`digits`, or `bigmnist` where it is made of as many digits as scikit-learn has; None for any other data."""
    assert run.point
    data = run.point.workload.data
    if data.name == "bigmnist" and run.epoch_samples == data.copies * len(data.variants) * DIGITS.train_samples:
        return "bigmnist"
    return "digits" if data.name == "digits" else None


def loader_notes(runs: Sequence[Run]) -> Iterator[Advice]:
    """A note of each kind, of the run that has most of it."""
    counting = [run for run in runs if run.state == "counts" and run.trains and run.loader]
    training = [run for run in counting if run.point and run.point.measure.input != "io"]  # of others the rates say what is best
    crowded = [(run, cpus) for run in training if (cpus := _cpus_of_rank(run)) is not None and _workers(run) > cpus]
    if crowded:
        run, cpus = max(crowded, key=lambda each: (_workers(each[0]) / each[1], each[0].name))
        fewer, why = _fewer(run, cpus)
        yield phrase(
            f"A rank of {run.name} has {count(_workers(run), 'loader worker')} on {count(cpus, 'CPU')}, which reading and "
            f"training share.{more_runs(len(crowded), ' The same holds for {}.')} Use fewer with ",
            Set({WORKERS: fewer}),
            why,
        )
    cut = [run for run in counting if run.loader and run.loader.prefetch_cut]
    if cut and cut[0].loader:
        more = more_runs(len(cut), " The same holds for {}.")
        yield f"{capital(cut[0].loader.prefetch_cut or '')} ({cut[0].name}).{more}"


def _workers(run: Run) -> int:
    return run.loader.workers if run.loader else 0


def _fewer(run: Run, cpus: int) -> tuple[int | str, str]:
    """A setting, and what it does: `auto` where a sweep knows a rank's cores and that makes fewer; else their number less one."""
    planned = run.point.layout.physical_cores_per_rank if run.point else None
    threads = run.signals.processors.threads if run.signals and run.signals.processors else 1
    if planned and planned * threads <= cpus:
        return "auto", ", as its cores allow."
    return max(1, cpus // threads - 1), "."


def _cpus_of_rank(run: Run) -> int | None:
    """Logical CPUs that each rank may run on, as Slurm counts them; None where that is not known."""
    found = run.signals.processors if run.signals else None
    return None if found is None or found.of_rank is None else max(1, round(found.of_rank * found.threads))


def staging_notes(runs: Sequence[Run]) -> Iterator[str]:
    """One note on all copies, and one for each point that was measured with a copy and without."""
    counting = [run for run in runs if run.state == "counts"]
    staged = [(run, run.staging) for run in counting if run.staging and not run.staging.reused]
    if not staged:
        return
    waits = sorted(staging.wait_s for _, staging in staged)
    ends = duration(waits[0]), duration(waits[-1])
    spread = f" ({ends[0]} to {ends[1]}, median of {len(waits)} runs)" if ends[0] != ends[1] else ""
    rates = [staging.bytes_per_s for _, staging in staged if staging.bytes_per_s]
    copied = size(max(staging.copied_bytes for _, staging in staged))
    speed = f", at {size(statistics.median(rates))}/s" if rates else ""
    yield (
        f"{copied} were copied to each node before {count(len(staged), 'run')}{speed}. Ranks waited "
        f"{duration(statistics.median(waits))}{spread} for the copy. No step time includes this wait."
    )
    points = defaultdict[str, list[Run]](list)
    for run in counting:
        points[run.label].append(run)
    for label, same in points.items():
        yield from _break_even(label, [run for run in same if run.staging], [run for run in same if not run.staging])


def _break_even(label: str, staged: Sequence[Run], direct: Sequence[Run]) -> Iterator[str]:
    """Nothing where one of the two was not measured, or nobody knows what an epoch is."""
    with_copy, without = ([run.epoch_ns / 1e9 for run in runs if run.epoch_ns] for runs in (staged, direct))
    if not with_copy or not without:
        return
    took_s, instead_s = statistics.median(with_copy), statistics.median(without)
    times = f"An epoch of {label} takes {quantity(took_s)} s with a copy on each node and {quantity(instead_s)} s without."
    waits = [run.staging.wait_s for run in staged if run.staging and not run.staging.reused]
    if max(with_copy) >= min(without):
        yield f"{times} Runs with and without the copy overlap, so no gain is visible."
    elif waits:
        wait_s = statistics.median(waits)
        epochs = wait_s / (instead_s - took_s)
        pays = "within the first epoch" if epochs < 1 else f"after {epochs:.1f} epochs"
        yield f"{times} The copy takes {duration(wait_s)} and pays off {pays}."
