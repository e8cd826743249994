"""What a study's records come to, before it is put into words and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.step_times import Bins, pooled_bins
from hpcddp.analysis.study import comm_bench, readings
from hpcddp.analysis.study.accuracy import EPOCHS_COLUMNS, TARGET_COLUMNS, epochs_frame, targets_frame
from hpcddp.analysis.study.axes import Axis, axes
from hpcddp.analysis.study.axis_words import judged_axes, leading_sentences
from hpcddp.analysis.study.fits import LAW_COLUMNS, Fitted, fit_study, implied, law_notes, laws_frame
from hpcddp.analysis.study.frames import runs_frame, typed_frame, with_training
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.scaling import OUTLIER_COLUMNS, outlier_notes, outliers_frame, scaling_frame
from hpcddp.analysis.study.series import Apart, differing, full_names
from hpcddp.analysis.study.trained import Facts, trained
from hpcddp.analysis.util.files import Failures
from hpcddp.analysis.util.wording import as_sentences, unit
from hpcddp.analysis.verdicts import notes, sentence
from hpcddp.analysis.verdicts.context import Advice, Case, PointRow, Verdict, listed
from hpcddp.analysis.verdicts.gates import damaged_notes
from hpcddp.analysis.verdicts.input import LOADER_COLUMNS, loaders_frame
from hpcddp.analysis.verdicts.verdicts import cause, decided, doubts, verdicts
from hpcddp.core.point import scaling_kind


@dataclass(frozen=True)
class Findings:
    """One study's tables and sentences."""

    records: StudyRecords
    kinds: list[str]
    """`strong scaling (fixed epoch)`; more than one where runs do different work."""
    runs: pd.DataFrame
    scaling: pd.DataFrame
    limits: pd.DataFrame
    loaders: pd.DataFrame
    """What loaders gave, a row per row of `scaling`, and which limit of theirs holds."""
    stragglers: pd.DataFrame
    buckets: pd.DataFrame
    collectives: pd.DataFrame
    fits: pd.DataFrame
    """Latency and bandwidth of the collectives."""
    laws: pd.DataFrame
    """Laws fitted to throughput over nodes and GPUs; `implied` has what those of the shown series imply."""
    implied: list[str]
    outliers: pd.DataFrame
    epochs: pd.DataFrame
    """Every epoch of `work: train`."""
    targets: pd.DataFrame
    """How long each size takes to an accuracy."""
    apart: Apart
    shown: pd.DataFrame
    """Rows that tables and figures show: those of full training, or those of limited input where there are no others."""
    shown_apart: Apart
    heading: str
    """The finding in a few words."""
    cause: str
    """`The main limit is exchanging gradients`; empty where nothing is known to, or no size is larger."""
    sentences: list[str]
    trained: Facts
    """What was trained, on what and when."""
    limited_by: tuple[str, ...]
    """What holds back each row of `shown` most, such as `exchange` or `input`; empty where nothing is known to."""
    verdicts: list[Verdict]
    notes: list[str]
    readings: pd.DataFrame
    """What telemetry read, a row per row of `shown`."""
    effects: list[Axis]
    """What each key changes, of which points of one size differ."""
    is_of_keys: bool
    """Whether that is what the study is about: its size does not vary."""
    detail: DetailTables
    """Single runs, for figures."""
    failures: Failures
    """Parts that raised an error, and so are missing above."""


def find(records: StudyRecords, train_epochs: int | None = None) -> Findings:
    """All findings about a study; `train_epochs`: of a complete training. Errors in the tables of runs and of scaling, and in
    what tells series apart, are raised: nothing holds without these. Any other costs the table, notes or sentences it is of."""
    failures = Failures(records.failures)

    def table(of: str, columns: Mapping[str, str], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        return failures.contain(of, make, typed_frame((), columns))

    runs = runs_frame(records)
    table_of_points = scaling_frame(runs, records.points, records.hold, records.predicted)
    scaling = failures.contain("costs of a training", lambda: with_training(table_of_points, train_epochs), table_of_points)
    apart = differing(scaling["series"].unique())
    full = scaling[scaling["input"] == "full"]
    shown = full if len(full) else scaling
    shown_apart = differing(shown["series"].unique())
    names, loading = full_names(shown_apart), scaling[scaling["input"] == "io"]
    stragglers = table("stragglers", comm_bench.STRAGGLER_COLUMNS, lambda: comm_bench.stragglers_frame(records.runs))
    buckets = table("buckets", comm_bench.BUCKET_COLUMNS, lambda: comm_bench.buckets_frame(records.runs))
    fits = table("fits of collectives", comm_bench.FIT_COLUMNS, lambda: comm_bench.fits_frame(records.runs))
    effects = failures.contain("effects", lambda: judged_axes(axes(runs, scaling)), list[Axis]())
    rates = failures.contain("rates by input", lambda: readings.rates_by_input(scaling), readings.Rates())
    case = Case(records, runs, shown, names, rates, stragglers, buckets, fits, effects, loading)
    fitted = failures.contain("laws of scaling", lambda: fit_study(runs, scaling, records.hold), list[Fitted]())
    holding = [each for each in fitted if each.fit.holds]
    outliers = table("outliers", OUTLIER_COLUMNS, lambda: outliers_frame(runs))
    targets = table("time to accuracy", TARGET_COLUMNS, lambda: targets_frame(records, runs, shown))
    read = table("readings", readings.READING_COLUMNS, lambda: readings.readings_frame(shown, runs))
    of_tables: dict[str, Callable[[], Iterable[Advice]]] = {
        "notes on outliers": lambda: outlier_notes(outliers),
        "notes on collectives": lambda: comm_bench.comm_notes(records.runs),
        "notes on readings": lambda: readings.reading_notes(read),
        "notes on laws": lambda: law_notes(fitted, full_names(apart)),
    }
    said = _all_of(failures, _notes_of_runs(records, runs, shown) | of_tables)
    undecided = [*map(as_sentences, records.warnings), *said]
    found = verdicts(case, failures)
    bare = found, [note for note in undecided if isinstance(note, str)]
    judged, noted = failures.contain("advice", lambda: decided(found, undecided, records.points), bare)
    causes = failures.contain("what limits each point", lambda: _causes(case), dict[Any, tuple[str, str]]())
    shown_holding = [each for each in holding if each.series in names]
    return Findings(
        records=records,
        kinds=failures.contain("the kind of study", lambda: _kinds(case), list[str]()),
        runs=runs,
        scaling=scaling,
        limits=table("limits", readings.LIMITS_COLUMNS, lambda: readings.limits_frame(scaling, apart)),
        loaders=table("loaders", LOADER_COLUMNS, lambda: loaders_frame(case, scaling)),
        stragglers=stragglers,
        buckets=buckets,
        collectives=table("collectives", comm_bench.COMM_COLUMNS, lambda: comm_bench.comm_frame(records.runs)),
        fits=fits,
        laws=table("the table of laws", LAW_COLUMNS, lambda: laws_frame(holding)),
        implied=failures.contain("what laws imply", lambda: implied(shown_holding, names), list[str]()),
        outliers=outliers,
        epochs=table("epochs", EPOCHS_COLUMNS, lambda: epochs_frame(records, runs)),
        targets=targets,
        apart=apart,
        shown=shown,
        shown_apart=shown_apart,
        heading=failures.contain("the heading", lambda: sentence.heading(case, _open(case, judged)), records.name),
        cause=failures.contain("the cause", lambda: _cause(case, causes), ""),
        sentences=_all_of(failures, _sentences(case, shown_apart, judged, targets, causes)),
        trained=failures.contain("what was trained", lambda: trained(records.runs), dict[str, list[str]]()),
        limited_by=tuple(causes[row][1] if row in causes else "" for row in shown.index),
        verdicts=judged,
        readings=read,
        effects=effects,
        is_of_keys=case.is_of_keys,
        detail=failures.contain("figures of single runs", lambda: detail_tables(case, judged), no_detail_tables()),
        notes=noted,
        failures=failures,
    )


Said = TypeVar("Said")


def _all_of(failures: Failures, parts: Mapping[str, Callable[[], Iterable[Said]]]) -> list[Said]:
    """What the parts say, one after the other; one that raises says nothing."""
    none = list[Said]()
    return [each for of, say in parts.items() for each in failures.contain(of, lambda say=say: list(say()), none)]  # type: ignore[misc]


def _notes_of_runs(records: StudyRecords, runs: pd.DataFrame, shown: pd.DataFrame) -> dict[str, Callable[[], Iterable[Advice]]]:
    return {
        "notes on data": lambda: notes.data_notes(records.runs),
        "notes on damaged data": lambda: damaged_notes(records.runs),
        "notes on loaders": lambda: notes.loader_notes(records.runs),
        "notes on scaling": lambda: notes.notes(shown),
        "notes on clocks": lambda: notes.clock_notes(runs),
        "notes on windows": lambda: notes.window_notes(records.runs),
        "notes on warm-up": lambda: notes.warmup_notes(records.runs),
        "notes on starts": lambda: notes.start_notes(records.runs),
        "notes on staging": lambda: notes.staging_notes(records.runs),
        "notes on preflight": lambda: notes.preflight_notes(records.preflights),
        "notes on networks": lambda: notes.network_notes(records.runs),
        "notes on checks": lambda: notes.check_notes(runs),
        "notes on restarts": lambda: notes.restart_notes(records.runs),
    }


def _kinds(case: Case) -> list[str]:
    """Empty where no run trains."""
    if case.is_of_keys:
        return [f"effect of {listed([axis.name for axis in case.effects])} on {sentence.size_words(case.points.iloc[0])}"]
    return [scaling_kind(case.records.hold, work) for work in sorted({point.work for point in case.records.points} - {"comm"})]


def _open(case: Case, judged: Sequence[Verdict]) -> sentence.Doubts:
    return lambda rows: doubts(judged, [run for row in rows for run in case.runs_of(row)])


def _cause(case: Case, causes: Mapping[Any, tuple[str, str]]) -> str:
    rows = sentence.ends(case.points).index
    found = dict.fromkeys(causes[row][0] for row in rows if row in causes and not case.is_of_keys)
    return f"The main limit is {' or '.join(found)}" if found else ""


def _causes(case: Case) -> dict[Any, tuple[str, str]]:
    """Of rows of `shown`, in a sentence and in a table."""
    found = {index: cause(case, row) for index, row in case.points.iterrows()}
    return {index: each for index, each in found.items() if each}


def _sentences(
    case: Case, apart: Apart, judged: Sequence[Verdict], targets: pd.DataFrame, causes: Mapping[Any, tuple[str, str]]
) -> dict[str, Callable[[], Iterable[str]]]:
    against = _open(case, judged)

    def held_back_by(row: PointRow) -> str | None:
        return causes[row.name][0] if row.name in causes else None

    def first() -> list[str]:
        best = sentence.best_sentence(case, case.points, case.names, against) if case.is_of_keys else ""
        found = [best] if best else sentence.sentences(case.points, apart, held_back_by, against)
        found = list(dict.fromkeys([*found, *filter(None, [sentence.loader_sentence(case, against)])]))
        return found + (leading_sentences(case.effects) if case.is_of_keys else [])

    return {
        "the sentences": lambda: sentence.none_counts_sentence(case.records.runs) or first(),
        "the sentences on accuracy": lambda: sentence.accuracy_sentences(case),
        "the sentences on time to accuracy": lambda: sentence.target_sentences(targets, case.points, full_names(apart)),
    }


MOST_RUNS = 2
LEAST_PERCENT = 1.0
"""Share of the step: a rank map is left out where no rank ever differs by this much."""

LEAST_STEPS = 20
"""Steps of a point below which there is no distribution."""

TIMES_COLUMNS = {"row": "Int64", "kind": "string", "bin": "Int64", "count": "Int64"}
"""Steps behind a point's throughput. `row`: of the scaling table; `kind`: timed or warm-up; `bin`: as Bins has it."""

RANKS_COLUMNS = {
    **{"panel": "string", "row": "Int64", "host": "string", "rank": "Int64", "first_step": "Int64", "steps": "Int64"},
    "over_percent": "Float64",
}
"""A cell per rank (or host: then `rank` is NA) and a few timed steps; see runs/slow_ranks.py."""

PARTS_COLUMNS = {
    **{"panel": "string", "step": "Int64", "step_s": "Float64", "aligned": "boolean", "rank": "Int64", "host": "string"},
    **{"part": "string", "begin_s": "Float64", "end_s": "Float64"},
}
"""A part of a rank's step, in seconds after the first rank's start; `step_s` is how long the step lasts."""

TRAVELS_COLUMNS = {
    **{"panel": "string", "bucket": "Int64", "bytes": "Int64"},
    **dict.fromkeys(("first_ready_s", "last_ready_s", "done_s"), "Float64"),
}
"""An all-reduce of that step, over all ranks."""


@dataclass(frozen=True)
class DetailTables:
    """Tables of the columns above."""

    times: pd.DataFrame
    ranks: pd.DataFrame
    parts: pd.DataFrame
    travels: pd.DataFrame
    trained: pd.DataFrame
    """TRAINED_COLUMNS: what gradients reached of the network while training."""


def detail_tables(case: Case, verdicts: Sequence[Verdict]) -> DetailTables:
    """All of it; tables without rows where there is nothing to show."""
    runs = detail_runs(case, verdicts)
    return DetailTables(
        times_frame(case),
        typed_frame((cell for panel, run in runs for cell in _cells(panel, run)), RANKS_COLUMNS),
        typed_frame((part for panel, run in runs for part in _parts(panel, run)), PARTS_COLUMNS),
        typed_frame((travel for panel, run in runs for travel in _travels(panel, run)), TRAVELS_COLUMNS),
        trained_frame(case),
    )


def no_detail_tables() -> DetailTables:
    """Tables without rows."""
    every = (TIMES_COLUMNS, RANKS_COLUMNS, PARTS_COLUMNS, TRAVELS_COLUMNS, TRAINED_COLUMNS)
    return DetailTables(*(typed_frame((), columns) for columns in every))


def times_frame(case: Case) -> pd.DataFrame:
    """TIMES_COLUMNS of the points with enough steps."""
    found = []
    for row, point in case.points.iterrows():
        labels = str(point["label"]).split(" + ")
        runs = [run for run in case.runs_of(point) if run.label in labels]
        timed = pooled_bins(run.distribution.timed for run in runs if run.distribution)
        warmup = pooled_bins(run.distribution.warmup for run in runs if run.distribution)
        if sum(count for _, count in timed) >= LEAST_STEPS:
            found += [(row, kind, *each) for kind, bins in (("timed", timed), ("warm-up", warmup)) for each in bins]
    return typed_frame(found, TIMES_COLUMNS)


def bins_of(times: pd.DataFrame, row: Any, kind: str) -> Bins:
    """The bins of a point's steps, from times_frame."""
    found = times[(times["row"] == row) & (times["kind"] == kind)]
    return tuple(zip(found["bin"], found["count"], strict=True))


def detail_runs(case: Case, verdicts: Sequence[Verdict]) -> list[tuple[str, Run]]:
    """(title, run): the worst run of the costliest straggler, and the middle one of the largest point; of several ranks, once."""
    accused = [verdict.runs[0] for verdict in verdicts if verdict.name == "straggler"][: MOST_RUNS - 1]
    runs = [run for run in case.counting if run.name in accused]
    if len(case.points):
        largest = case.points.iloc[int(case.points["ranks"].astype(int).argmax())]
        if largest["ranks"] > 1 and not any(run in case.runs_of(largest) for run in runs):
            runs.append(_middle(case, largest))
    return [(_title(case, run), run) for run in runs if run.timeline is not None]


def _middle(case: Case, point: pd.Series[Any]) -> Run:
    """The run that is nearest to the median, of those that the breakdown comes from."""
    labels = str(point["breakdown_label"]).split(" + ")
    runs = [run for run in case.runs_of(point) if run.label in labels]
    middle = pd.Series([run.step_ns for run in runs]).median()
    return min(runs, key=lambda run: (abs((run.step_ns or 0) - middle), run.run))


def _title(case: Case, run: Run) -> str:
    """`16 nodes x 4 GPUs, run 2`, with its series where there are several."""
    assert run.point is not None
    layout = run.point.layout
    size = f"{layout.nodes} x {layout.gpus_per_node} {unit(run.point.device)}s, run {run.run}"
    series = next((str(row["series"]) for _, row in case.points.iterrows() if run in case.runs_of(row)), "")
    return ", ".join(filter(None, [size, case.names.get(series, "")]))


def _cells(panel: str, run: Run) -> Iterator[tuple[Any, ...]]:
    """Cells of the rank map; none where all ranks are as fast as the median one."""
    found = run.rank_map
    if found is None or max(abs(value) for row in found.over_percent for value in row) < LEAST_PERCENT:
        return
    for row, (host, values) in enumerate(zip(found.hosts, found.over_percent, strict=True)):
        rank = None if found.ranks is None else found.ranks[row]
        for column, value in enumerate(values):
            first, end = found.steps[column : column + 2]
            yield panel, row, host, rank, first, end - first, value


def _parts(panel: str, run: Run) -> Iterator[tuple[Any, ...]]:
    assert run.timeline is not None
    step = (run.timeline.step, run.timeline.step_ns / 1e9, run.timeline.aligned)
    for rank in run.timeline.ranks:
        at = rank.start_ns
        for part, ns in rank.parts_ns:
            yield panel, *step, rank.rank, rank.host, part, at / 1e9, (at + ns) / 1e9
            at += ns


def _travels(panel: str, run: Run) -> Iterator[tuple[Any, ...]]:
    assert run.timeline is not None
    for bucket in run.timeline.buckets:
        times = (bucket.first_ready_ns, bucket.last_ready_ns, bucket.done_ns)
        yield panel, bucket.index, bucket.size_bytes, *(ns / 1e9 for ns in times)


TRAINED_COLUMNS = {
    **{"layout": "string", "nodes": "Int64", "gpus_per_node": "Int64", "gpu": "string", "kind": "string", "bytes": "Int64"},
    **{"busbw_bytes_per_s": "Float64", "limit_bytes_per_s": "Float64"},
}
"""`kind`: bucket, each by itself (NCCL); or together, a step's at their mean size (gloo, which has two under way at once)."""


def trained_frame(case: Case) -> pd.DataFrame:
    """Rows of points with the communication hook and several ranks; TRAINED_COLUMNS."""
    return typed_frame((row for _, point in case.points.iterrows() for row in _of_point(case, point)), TRAINED_COLUMNS)


def _of_point(case: Case, point: pd.Series[Any]) -> Iterator[dict[str, Any]]:
    if pd.isna(point["busbw_bytes_per_s"]) or point["ranks"] < 2:
        return
    runs = case.runs_of(point)
    hooked = {run.key for run in runs if run.exchange is not None}
    mine = case.buckets[[pair in hooked for pair in zip(case.buckets["label"], case.buckets["run"], strict=True)]]
    who = {name: point[name] for name in ("nodes", "gpus_per_node", "gpu")}
    who["layout"] = comm_bench.layout_of_bench(int(point["nodes"]), int(point["gpus_per_node"]), str(point["device"]))
    who["limit_bytes_per_s"] = comm_bench.fabric_limit(next((run.fabric_gbps for run in runs), None), int(point["nodes"]))
    by_size = mine.dropna(subset=["busbw_bytes_per_s"]).groupby("bytes")["busbw_bytes_per_s"].median()
    yield from ({**who, "kind": "bucket", "bytes": size, "busbw_bytes_per_s": rate} for size, rate in by_size.items())
    if by_size.empty and len(mine):
        mean = round(float(point["step_bytes"]) / (len(mine) / len(hooked)))
        yield {**who, "kind": "together", "bytes": mean, "busbw_bytes_per_s": point["busbw_bytes_per_s"]}
