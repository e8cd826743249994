"""Which point is predicted from which, or why it is not: from the measured point of its kind with most nodes."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcddp import __version__
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.catalog import gradient_buckets
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point, canonical, comm_point
from hpcddp.core.prediction import PredictedPoint, PredictionRecord
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.text import count, size
from hpcddp.predict.anchor import MeasuredRun, is_measured, read_link, read_run
from hpcddp.predict.model import FORWARD, LOST_PER_DOUBLING, REACHED, Anchor, Bucket, Network, predict, sent_share
from hpcddp.study.study_records import read_point, read_record
from hpcddp.sweep.disk_usage import run_steps
from hpcddp.sweep.expand import PlannedPoint, without_size
from hpcddp.sweep.file import SweepFile

LEAST_BATCH_RATIO = 0.25
"""Of the anchor's batch per GPU: below it, published steps took up to 29 % longer than the model has them."""

SHARDED = "sharded models lose less per doubling of nodes than the model's 2 %"
BY_HAND = "gradients that are exchanged by hand overlap with no computation"
NOT_PREDICTED = {
    **{"fsdp": SHARDED, "hsdp": SHARDED, "all_reduce": BY_HAND, "gather_scatter": BY_HAND},
    **{"data_parallel": "one process has all GPUs of a node", "none": "the bare model exchanges nothing"},
}
"""`workload.parallel` -> why the model does not fit it."""

NOT_MEASURED = "no node of its kind is measured"
NO_BUCKETS = "buckets of this model, or of this bucket_cap_mb, are unknown, so the exchange is omitted"
MEASURE = "measure it with `hpcddp bench comm`"
TCP = f"TCP reaches an unknown share of the link: {MEASURE}"


@dataclass(frozen=True, kw_only=True)
class AnchorSource:
    """An anchor, where it is from, and the runs that were measured there."""

    name: str
    anchor: Anchor
    runs: Sequence[MeasuredRun] = ()
    passed_over: str | None = None
    """Why runs on more nodes are not the anchor."""


@dataclass(frozen=True)
class Link:
    """The exchange between nodes, as far as it is known."""

    network: Network | None
    rate: str | None = None
    origin: str | None = None
    buckets: Sequence[Bucket] = ()
    missing: str | None = None
    """Why numbers are upper bounds; None where they are none."""


@dataclass(frozen=True)
class Expected:
    """A point with its prediction."""

    point: Point
    predicted: PredictedPoint
    source: AnchorSource | None = None

    @property
    def run_s(self) -> float | None:
        """What a run takes from srun on, at most; None where its step, or how many there are, is not known."""
        step_s, measure = self.predicted.step_s, self.point.measure
        if step_s is None or self.source is None or measure.stop == "interval":
            return None
        starts_s = [run.start_up_s for run in self.source.runs if run.start_up_s] or [0.0]
        timed_s = measure.warmup_steps * step_s + measure.seconds if measure.seconds else run_steps(self.point) * step_s
        return timed_s + statistics.median(starts_s)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of a sweep's points on a cluster, from what their study has measured."""

    study: Study
    sweep: SweepFile
    profile: ClusterProfile
    points: Sequence[PlannedPoint]
    given: Mapping[str, AnchorSource] = field(default_factory=dict)
    """Kind -> what `--measured` gives in place of its runs."""

    def wanted(self) -> Iterator[Point]:
        """The points that train on several nodes."""
        trained = (each.point for each in self.points if each.point.work != "comm" and each.point.measure.input != "io")
        return (point for point in trained if point.layout.nodes > 1)

    def all(self) -> Iterator[Expected]:
        """Of each point on several nodes that is not measured itself; with a reason where there is no number."""
        for point in self.wanted():
            own = self._begun.get(self.kind(point), {}).get(point.layout.nodes, ())
            if any(is_measured(self.study, *begun) for begun in own):
                continue
            source = why_not(point) or self.source(point)
            if isinstance(source, str):
                yield Expected(point, PredictedPoint(label=point.label, reason=source))
            elif source.anchor.nodes < point.layout.nodes:
                yield Expected(point, self.on(point, source, point.layout.nodes), source)

    def on(self, point: Point, source: AnchorSource, nodes: int) -> PredictedPoint:
        """The point on so many nodes in place of its own."""
        link, anchor = self.link(point), source.anchor
        batch = self.batch(point, nodes) or anchor.batch_per_gpu
        found = predict(point.label, anchor, nodes, batch, link.buckets, link.network or Network(float("inf"), 0.0))
        if batch < LEAST_BATCH_RATIO * anchor.batch_per_gpu:
            few = f"fewer samples per GPU than a quarter of the {anchor.batch_per_gpu:g} of {source.name}"
            found = PredictedPoint(label=point.label, reason=few)
        elif link.missing:
            bound = nodes * anchor.gpus_per_node * batch * (1 + LOST_PER_DOUBLING * math.log2(nodes / anchor.nodes))
            found = PredictedPoint(label=point.label, high=bound / (found.step_s or 1), reason=link.missing)
        return replace(
            found,
            anchor=source.name,
            anchor_runs=tuple(run.run for run in source.runs),
            anchor_samples_per_s=anchor.samples_per_s,
            network=link.rate,
            network_from=link.origin,
        )

    def batch(self, point: Point, nodes: int) -> float | None:
        """Samples per GPU on so many nodes; None where only the script knows."""
        known = point.workload.known_batch
        return known * point.layout.nodes / nodes if known and self.sweep.sweep.hold == "global_batch" else known

    def source(self, point: Point) -> AnchorSource | str:
        """Of what is measured of the point's kind that with most nodes, and no more than it has; or why there is none."""
        kind, rejected = self.kind(point), None
        if kind in self.given and self.given[kind].anchor.nodes <= point.layout.nodes:
            return self.given[kind]
        for nodes in sorted((each for each in self._begun.get(kind, ()) if each <= point.layout.nodes), reverse=True):
            runs, why = self._runs(kind, nodes)
            if runs:
                return why_not(runs[-1].point) or replace(_source(runs), passed_over=rejected)
            rejected = rejected or (why and f"the runs on {count(nodes, 'node')} are rejected: {why}")
        return rejected or NOT_MEASURED

    def kind(self, point: Point) -> str:
        """Equal for points that differ in their nodes, and in what is done beside their timed steps."""
        return f"{point.layout.gpus_per_node} {canonical(without_size(point, self.sweep.sweep.hold))}"

    @functools.cached_property
    def _begun(self) -> Mapping[str, Mapping[int, list[tuple[Point, int]]]]:
        """Kind -> nodes -> runs."""
        found, points = dict[str, dict[int, list[tuple[Point, int]]]](), dict[str, Point | None]()
        for label, run in self.study.begun():
            if label not in points:
                points[label] = None
                with contextlib.suppress(HpcddpError):  # submit and analyze say so
                    points[label] = read_point(self.study, label)
            if point := points[label]:
                found.setdefault(self.kind(point), {}).setdefault(point.layout.nodes, []).append((point, run))
        return found

    @functools.cache  # noqa: B019 - lives as long as a command
    def _runs(self, kind: str, nodes: int) -> tuple[list[MeasuredRun], str | None]:
        """Those that count, of the newest environment and GPUs; why one of the others does not."""
        read = [self._run(*begun) for begun in self._begun[kind][nodes]]
        runs = sorted((each for each in read if isinstance(each, MeasuredRun)), key=lambda run: run.ended_unix_ns)
        return [run for run in runs if run.kind == runs[-1].kind], next((each for each in read if isinstance(each, str)), None)

    @functools.cache  # noqa: B019 - as above
    def _run(self, point: Point, run: int) -> MeasuredRun | str | None:
        return read_run(self.study, point, run)

    def link(self, point: Point) -> Link:
        """Buckets as recorded on the fewest nodes, else as the catalogue has them; the network by `bench comm` or the profile."""
        known, begun = self._network(point), self._begun.get(self.kind(point), {})
        timed = (each for nodes in sorted(begun) for each in begun[nodes] if each[0].times_buckets)
        recorded = (run.buckets for run in (self._run(*each) for each in timed) if isinstance(run, MeasuredRun))
        buckets = next(filter(None, recorded), None) or [Bucket(*each) for each in gradient_buckets(point.workload) or ()]
        return replace(known, buckets=buckets, missing=known.missing if buckets else NO_BUCKETS)

    def _network(self, point: Point) -> Link:
        benches = self._begun.get(self.kind(comm_point(point)), {})
        for nodes in sorted((each for each in benches if each > 1), reverse=True):
            fit = next(filter(None, (read_link(self.study, *begun) for begun in benches[nodes])), None)
            if fit and fit.bandwidth_bytes_per_s:
                reached = sent_share(nodes) * fit.bandwidth_bytes_per_s
                return Link(Network(reached, fit.latency_s), f"{size(reached)}/s", f"bench comm on {count(nodes, 'node')}")
        fabric = self.profile.fabric
        if not fabric.gbps_per_node:
            return Link(None, missing=f"the profile of {self.profile.name} defines no rate between nodes: {MEASURE}")
        if fabric.protocol == "tcp":
            gbps, share, missing = fabric.burst_gbps or fabric.gbps_per_node, 1.0, TCP
        else:
            gbps, share, missing = fabric.gbps_per_node, REACHED, None
        return Link(Network(share * gbps * 1e9 / 8), f"{gbps:g} Gb/s", "profile", missing=missing)


def why_not(point: Point) -> str | None:
    """Why the model does not fit the point, whatever is measured."""
    workload = point.workload
    if workload.parallel in NOT_PREDICTED:
        return f"workload.parallel is {workload.parallel}: {NOT_PREDICTED[workload.parallel]}"
    if workload.ddp.compression == "powersgd":
        return "workload.ddp.compression is powersgd: its messages depend on the rank of each matrix"
    return "the batch grows while it trains" if workload.optimizer.batch_at_epochs else None


def _source(runs: Sequence[MeasuredRun]) -> AnchorSource:
    """Medians over the runs without the hook, where there are such."""
    plain = [run for run in runs if run.point.measure.comm == "off"] or runs
    point, rate = plain[-1].point, statistics.median(run.samples_per_s for run in plain)
    anchor = Anchor(
        nodes=point.layout.nodes,
        gpus_per_node=point.layout.gpus_per_node,
        batch_per_gpu=point.workload.batch_per_gpu,
        step_s=point.gpus * point.workload.batch_per_gpu / rate,
        waits=statistics.median(run.waits for run in plain),
        ahead=statistics.median(run.ahead for run in plain) or FORWARD,
    )
    return AnchorSource(name=point.label, anchor=anchor, runs=plain)


def recorded_prediction(study: Study) -> PredictionRecord:
    """Of prediction.json; without points where there is none, HpcddpError where it cannot be read."""
    return read_record(PredictionRecord, study.prediction_file) or PredictionRecord()


def write_prediction(predictions: Predictions, begun: Collection[str]) -> None:
    """Adds to the study's prediction.json what is expected of points that have no run yet (`begun` has the labels of the others).
    A file that cannot be read stays as it is.
    """
    try:
        before = recorded_prediction(predictions.study)
    except (HpcddpError, OSError):
        return
    new = [each.predicted for each in predictions.all() if each.point.label not in begun]
    points = {each.label: each for each in before.points}
    points |= {each.label: replace(each, made_unix_s=int(time.time()), version=__version__) for each in new}
    if new:
        write_json(predictions.study.prediction_file, encode(PredictionRecord(points=tuple(points.values()))))
