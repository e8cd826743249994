"""How well `plan` predicts published series from one full node: `python -m tests.bench.predict_published`.

analysis/figures/reference_points.csv has the series. The anchor is the point on the fewest full nodes; the others are predicted
with the model's constants as they are. Linear scaling keeps the anchor's rate per node. Beside the bounds stands the error with a
loss per doubling that is fitted to the other systems.

Bounds, over the points that count: median error 5 %; mean two thirds of linear scaling's; none above 20 %; four of five within
the band, whose half width is at most 8 %. Shown, but not counted: rejected points, those with less than a quarter of the anchor's
batch per GPU, where the program gives no number, and series that NOT_COUNTED names.

A node's rate is what its source says, with RDMA. Models that the catalogue does not have send buckets of 25 MiB, ready one after
the other. Gradients are of fp32, also with autocast, but where the source's program sends them in fp16.
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hpcddp.analysis.figures.references import FILE
from hpcddp.core.catalog import gradient_buckets
from hpcddp.core.point import Data, Workload
from hpcddp.core.prediction import PredictedPoint
from hpcddp.predict.expected import LEAST_BATCH_RATIO
from hpcddp.predict.model import BAND, LOST_PER_DOUBLING, REACHED, Anchor, Bucket, Network, predict

MEDIAN, OF_LINEAR, WORST, WITHIN, WIDEST = 0.05, 2 / 3, 0.20, 0.80, 0.08

BUCKET_BYTES = 25 * 2**20

GRADIENT_BYTES = {
    **{"BERT base": 440e6, "RetinaNet": 152e6, "Mask R-CNN": 176e6},
    **{"resnet101": 178e6, "resnext50_32x4d": 100e6, "resnext101_32x8d": 355e6},
}
"""Of fp32, about, of models that the catalogue does not have."""

GBPS = {"Marconi100": 200.0, "RCC": 100.0}
"""Of a node, where the name of its system does not say it."""

SENT_IN_FP16 = re.compile(r"mlperf-(?!.*retinanet)|dlperf-.*amp.*-(mxnet|oneflow)|dlperf-bert-amp.*-ngc")
"""Horovod's and OneFlow's all-reduces of fp16 weights' gradients, models made half, and compression."""

ONE_BUCKET = re.compile(r"dlperf-bert-.*-ngc-pytorch")
"""A bucket of a gigabyte: all gradients travel when backward has ended."""

OTHER_EXCHANGE = "not known whether its all-reduces overlap backward"
"""PyTorch's and apex's DDP and Horovod are known to; frameworks that compile the step order the exchange themselves."""

NOT_COUNTED = {
    "kempner-a100": "wall clock of epochs: 7 to 10 s of each are no steps",
    "rcc-mnist": "wall clock of jobs, on one GPU of a node's four",
    "rcc-bigmnist": "wall clock of jobs, on one GPU of a node's four",
    "dlperf-.*-(oneflow(-noclip)?|paddle|tensorflow2|ngc-tensorflow-xla)": OTHER_EXCHANGE,
}
"""Names -> why their points say nothing of steps whose gradients travel, bucket by bucket, during backward."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A published point."""

    system: str
    nodes: int
    gpus_per_node: int
    batch_per_gpu: float
    per_s: float
    rejected: bool


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A point beside what was predicted."""

    name: str
    system: str
    nodes: int
    doublings: float
    batch_ratio: float
    """Of the anchor's batch per GPU."""
    per_s: float
    found: PredictedPoint
    linear: float
    """Samples/s."""
    left_out: str
    """Why it does not count; empty: it does."""

    @property
    def error(self) -> float:
        return (self.found.samples_per_s or 0.0) / self.per_s - 1

    @property
    def of_linear(self) -> float:
        return self.linear / self.per_s - 1

    @property
    def within(self) -> bool:
        return (self.found.low or 0.0) <= self.per_s <= (self.found.high or 0.0)

    @property
    def lost(self) -> float:
        """Of a step in each doubling, beyond what the model has for the exchange."""
        longer = (1 + LOST_PER_DOUBLING * self.doublings) * (1 + self.error)
        return (longer - 1) / self.doublings

    def with_lost(self, lost: float) -> float:
        """Its error with another loss per doubling."""
        return (1 + self.error) * (1 + LOST_PER_DOUBLING * self.doublings) / (1 + lost * self.doublings) - 1


def main() -> int:
    """Prints a line for each point, and one of JSON; 1 where a bound does not hold."""
    points = scored()
    print(f"{'series':<38} {'nodes':>5} {'batch':>5} {'measured':>10} {'predicted':>10} {'error %':>8} {'linear %':>8}  counts")
    for each in points:
        print(
            f"{each.name:<38} {each.nodes:>5} {each.batch_ratio:>5.2g} {each.per_s:>10,.0f} {each.found.samples_per_s:>10,.0f} "
            f"{100 * each.error:>8.1f} {100 * each.of_linear:>8.1f}  {each.left_out or 'yes'}"
        )
    result = summary(points)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def scored() -> list[Scored]:
    """Every point of every series on more nodes than its anchor."""
    return [point for name, rows in by_name().items() for point in of_series(name, rows)]


def by_name() -> dict[str, list[dict[str, str]]]:
    """Rows of rates over all GPUs; where a name has none, those of times that samples are known for."""
    found: dict[str, list[dict[str, str]]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["name"], []).append(row)
    series = {name: rates(rows) or [row for row in rows if row["samples"]] for name, rows in found.items()}
    return {name: rows for name, rows in series.items() if rows}


def rates(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in rows if row["metric"] == "throughput"]


def of_series(name: str, rows: Sequence[dict[str, str]]) -> Iterator[Scored]:
    """Its points, predicted from the one on the fewest nodes with as many GPUs as its largest point has on each."""
    gpus_per_node = max(rows, key=lambda row: int(row["nodes"]))["gpus_per_node"]
    full = [row for row in rows if row["gpus_per_node"] == gpus_per_node]
    fewest, *more = sorted({int(row["nodes"]) for row in full})
    if not more:
        return
    first = point(full, fewest)
    reason = next((why for pattern, why in NOT_COUNTED.items() if re.fullmatch(pattern, name)), "")
    anchor = Anchor(
        nodes=first.nodes,
        gpus_per_node=first.gpus_per_node,
        batch_per_gpu=first.batch_per_gpu,
        step_s=first.nodes * first.gpus_per_node * first.batch_per_gpu / first.per_s,
    )
    for each in (point(full, nodes) for nodes in more):
        yield Scored(
            name=name,
            system=each.system,
            nodes=each.nodes,
            doublings=math.log2(each.nodes / first.nodes),
            batch_ratio=each.batch_per_gpu / first.batch_per_gpu,
            per_s=each.per_s,
            found=predict(name, anchor, each.nodes, each.batch_per_gpu, buckets(name, rows[0]), network(each.system)),
            linear=first.per_s * each.nodes / first.nodes,
            left_out=reason or why_left_out(each, anchor),
        )


def point(rows: Sequence[dict[str, str]], nodes: int) -> Rate:
    """The median of its rows, without the rejected ones where others are."""
    here = [row for row in rows if int(row["nodes"]) == nodes]
    good = [row for row in here if row["quality"] != "reject"] or here
    return Rate(
        system=good[0]["system"],
        nodes=nodes,
        gpus_per_node=int(good[0]["gpus_per_node"]),
        batch_per_gpu=float(good[0]["batch_per_gpu"]),
        per_s=statistics.median(per_s(row) for row in good),
        rejected=good[0]["quality"] == "reject",
    )


def per_s(row: dict[str, str]) -> float:
    return float(row["value"]) if row["metric"] == "throughput" else float(row["samples"]) / float(row["value"])


def why_left_out(each: Rate, anchor: Anchor) -> str:
    if each.rejected:
        return "rejected"
    if each.batch_per_gpu < LEAST_BATCH_RATIO * anchor.batch_per_gpu:
        return "not predicted: less than a quarter of the batch"
    return ""


def network(system: str) -> Network:
    """By `8x200 Gb/s` in the name of the system."""
    stated = re.search(r"(?:(\d+)x)?(\d+) Gb/s", system)
    known = next((gbps for start, gbps in GBPS.items() if system.startswith(start)), math.inf)
    gbps = int(stated[1] or 1) * int(stated[2]) if stated else known
    return Network(REACHED * gbps * 1e9 / 8)


def buckets(name: str, row: dict[str, str]) -> list[Bucket]:
    """The catalogue's for ImageNet and MNIST, else even ones."""
    width = 0.5 if SENT_IN_FP16.match(name) else 1.0
    known = next((size for start, size in GRADIENT_BYTES.items() if row["model"].startswith(start)), None)
    if known is None:
        model, data = ("mnist-cnn", "mnist") if row["model"].startswith("small CNN") else (row["model"].split()[0], "imagenet")
        of_catalog = gradient_buckets(Workload(model=model, data=Data(name=data)))
        assert of_catalog, row["model"]
        return [Bucket(size * width, ready) for size, ready in of_catalog]
    count = 1 if ONE_BUCKET.match(name) else math.ceil(known * width / BUCKET_BYTES)
    return [Bucket(known * width / count, (index + 1) / count) for index in range(count)]


def summary(points: Sequence[Scored]) -> dict[str, object]:
    """The errors of points that count, the bounds, and whether these hold."""
    counted = [each for each in points if not each.left_out]
    errors, linear = figures(counted), statistics.mean(abs(each.of_linear) for each in counted)
    within = statistics.mean(each.within for each in counted)
    return {
        "bench": "predict_published",
        "series": len({each.name for each in counted}),
        "systems": len({each.system for each in counted}),
        **errors,
        "linear_mean": round(linear, 4),
        "within_band": round(within, 3),
        "same_batch": figures([each for each in counted if each.batch_ratio == 1]),
        "another_batch": figures([each for each in counted if each.batch_ratio != 1]),
        "lost_per_doubling_of_others": figures(counted, of_others(counted)),
        "other_exchange": figures([each for each in points if each.left_out == OTHER_EXCHANGE]),
        "above_worst": [f"{each.name} on {each.nodes} nodes" for each in counted if abs(each.error) > WORST],
        "bounds": {"median": MEDIAN, "mean": round(OF_LINEAR * linear, 4), "worst": WORST, "within_band": WITHIN, "band": WIDEST},
        "holds": errors["median"] <= MEDIAN
        and errors["mean"] <= OF_LINEAR * linear
        and errors["worst"] <= WORST
        and within >= WITHIN
        and BAND <= WIDEST,
    }


def figures(points: Sequence[Scored], error: Callable[[Scored], float] = lambda point: point.error) -> dict[str, float]:
    errors = [abs(error(each)) for each in points]
    return {
        "points": len(errors),
        "median": round(statistics.median(errors), 4),
        "mean": round(statistics.mean(errors), 4),
        "worst": round(max(errors), 4),
    }


def of_others(points: Sequence[Scored]) -> Callable[[Scored], float]:
    """The error of a point with the median loss per doubling of all systems but its own."""
    lost = {
        system: statistics.median(each.lost for each in points if each.system != system)
        for system in {each.system for each in points}
    }
    return lambda point: point.with_lost(lost[point.system])


if __name__ == "__main__":
    sys.exit(main())
