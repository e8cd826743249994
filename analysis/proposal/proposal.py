"""What an application for computing time asks for: how a study scales, which size of job that speaks for, what training costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.report.provenance import Provenance, provenance
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.effects import Ratio
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import by_point, timed_runs
from hpcddp.analysis.verdicts.context import OF_POINT
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.errors import UsageError
from hpcddp.core.point import scaling_kind
from hpcddp.core.run_root import RunKey, Study

ENOUGH = 0.70
"""Efficiency against one node that a size is asked for with; a convention, not any one centre's rule: --nodes N overrides it."""


@dataclass(frozen=True, kw_only=True)
class MeasuredSize:
    """A layout of the series, with all that was measured of it."""

    row: Mapping[str, Any]
    """A row of scaling_frame."""
    vs_gpu: Ratio | None
    vs_node: Ratio | None
    """Efficiencies; None where the baseline is missing."""
    runs: tuple[Run, ...]
    """Runs that the numbers come from."""
    rejected: tuple[Run, ...]

    @property
    def nodes(self) -> int:
        return int(self.row["nodes"])


@dataclass(frozen=True)
class Choice:
    """The size of job that is asked for."""

    size: MeasuredSize
    by_user: bool
    """The user chose it; otherwise its efficiency did."""
    next: MeasuredSize | None
    """The next larger size that was measured."""


@dataclass(frozen=True)
class Span:
    """The mean of an amount over runs, the least and the most of any run; the ends are None of one run, and of energy."""

    value: float
    low: float | None
    high: float | None

    def times(self, count: int) -> Span:
        """So often."""
        return Span(self.value * count, *(None if end is None else end * count for end in (self.low, self.high)))


@dataclass(frozen=True)
class EpochCosts:
    """What one epoch costs."""

    epoch_s: Span
    node_h: Span
    gpu_h: Span | None
    gpu_kwh: Span | None
    node_kwh: Span | None
    """Of whole nodes, GPUs included."""
    node_energy_from: str | None
    """The source of that."""


@dataclass(frozen=True)
class Proposal:
    """Everything the page says."""

    found: Findings
    provenance: Provenance
    sizes: list[MeasuredSize]
    kind: str
    """The kind of scaling of the series: `weak scaling (fixed batch per GPU)`."""
    others: int
    """How many other series the study has."""
    choice: Choice | None
    costs: EpochCosts | None
    """None without a choice, or where an epoch's samples are not known."""
    epochs: int | None
    trainings: int
    co2_g_per_kwh: float | None = None
    """Without it nothing is said of CO2."""

    @property
    def name(self) -> str:
        return self.found.records.name

    @property
    def rows(self) -> pd.DataFrame:
        """Of scaling_frame, as far as they are of the series."""
        return pd.DataFrame([dict(size.row) for size in self.sizes])

    def source(self, size: MeasuredSize) -> str:
        """By which the page refers to the runs of this size: `[3]`."""
        return f"[{self.sizes.index(size) + 1}]"


def propose(
    study: Study, nodes: int | None = None, epochs: int | None = None, trainings: int = 1, co2_g_per_kwh: float | None = None
) -> Proposal:
    """`epochs` of one training; by default those that the sweep says. `co2_g_per_kwh` is the user's own factor.

    UsageError where no run of full training counts, or none was made on `nodes` full nodes.
    """
    records = load_study(study)
    epochs = epochs or records.train_epochs
    if trainings > 1 and epochs is None:
        raise UsageError("--runs counts trainings of --epochs N epochs. Give --epochs N, too.")
    found = find(records, epochs)
    full = found.shown[found.shown["input"] == "full"]
    if full.empty:
        raise UsageError(f"{study.folder}: no run of full training passed all checks; see `hpcddp analyze {study.folder}`")
    rows = _of_one_series(full)
    sizes = _sizes(found, rows)
    choice = choose(sizes, nodes)
    return Proposal(
        found=found,
        provenance=provenance(study, [run for size in sizes for run in size.runs]),
        sizes=sizes,
        kind=scaling_kind(found.records.hold, rows["work"].iloc[0]),
        others=full["series"].nunique() - 1,
        choice=choice,
        costs=epoch_costs(choice.size, row_of_readings(found, choice.size)) if choice else None,
        epochs=epochs,
        trainings=trainings,
        co2_g_per_kwh=co2_g_per_kwh,
    )


def _of_one_series(rows: pd.DataFrame) -> pd.DataFrame:
    """The series with the most sizes; of equally many DistributedDataParallel's, then the one that has the fastest point.
    DataParallel's, which cannot reach several nodes, only without another."""
    sizes = rows["series"].value_counts(sort=False).to_dict()
    parallel = {key: json.loads(str(key))["workload.parallel"] for key in sizes}
    fastest = rows.groupby("series")["samples_per_s"].max().to_dict()
    series = max(sizes, key=lambda key: (parallel[key] != "data_parallel", sizes[key], parallel[key] == "ddp", fastest[key]))
    found: pd.DataFrame = rows[rows["series"] == series]
    return found


def choose(sizes: Sequence[MeasuredSize], nodes: int | None) -> Choice | None:
    """The size of full nodes that the user wants, or else the largest whose efficiency against one node is at least ENOUGH."""
    full = [size for size in sizes if size.row["gpus_per_node"] == size.row["full_node_gpus"]]
    full.sort(key=lambda size: size.nodes)
    if nodes is not None:
        fitting = [size for size in full if size.nodes == nodes]
        if not fitting:
            measured = ", ".join(str(size.nodes) for size in full) or "none"
            raise UsageError(f"--nodes {nodes}: no run on {nodes} full nodes passed all checks. Measured: {measured}.")
    else:
        fitting = [size for size in full if size.vs_node is not None and size.vs_node.ratio >= ENOUGH]
    if not fitting:
        return None
    chosen = fitting[-1]
    return Choice(chosen, nodes is not None, next((size for size in full if size.nodes > chosen.nodes), None))


def row_of_readings(found: Findings, size: MeasuredSize) -> Mapping[str, Any]:
    """The size's row of readings."""
    same = [found.readings[name] == size.row[name] for name in OF_POINT]
    return {str(name): value for name, value in found.readings[same[0] & same[1] & same[2]].iloc[0].items()}


def epoch_costs(size: MeasuredSize, readings: Mapping[str, Any]) -> EpochCosts | None:
    """What an epoch costs at this size, energy by its `readings`; None where the number of its samples is not known."""
    row = size.row
    if pd.isna(row["epoch_s"]):
        return None
    return EpochCosts(
        epoch_s=_span(row, "epoch_s"),
        node_h=_span(row, "node_h_per_epoch"),
        gpu_h=None if pd.isna(row["gpu_h_per_epoch"]) else _span(row, "gpu_h_per_epoch"),
        gpu_kwh=_energy(row["gpu_kwh_per_epoch"]),
        node_kwh=_energy(readings["node_kwh_per_epoch"]),
        node_energy_from=_known(readings["node_energy_from"]),
    )


def _span(row: Mapping[str, Any], amount: str) -> Span:
    """Hours go with the time of an epoch."""
    mean, low, high = (_known(row[name]) for name in ("epoch_s", "epoch_s_low", "epoch_s_high"))
    value = float(row[amount])
    return Span(value, *(None if end is None else value * end / mean for end in (low, high)))


def _energy(kwh: Any) -> Span | None:
    return None if pd.isna(kwh) else Span(float(kwh), None, None)


def _sizes(found: Findings, rows: pd.DataFrame) -> list[MeasuredSize]:
    """All sizes of the series, in the order of the table."""
    records = {run.key: run for run in found.records.runs}
    mine = found.runs[found.runs["series"] == rows["series"].iloc[0]]
    timed = {(int(nodes), int(gpus)): timed_runs(members) for (_, nodes, gpus), members in by_point(mine)}
    rejected = {key: members for key, members in mine[mine["state"] == "rejected"].groupby(["nodes", "gpus_per_node"])}
    sizes = []
    for each in rows.to_dict(orient="records"):
        row = {str(name): value for name, value in each.items()}
        layout = int(row["nodes"]), int(row["gpus_per_node"])
        sizes.append(
            MeasuredSize(
                row=row,
                vs_gpu=_efficiency(row, "1gpu"),
                vs_node=_efficiency(row, "1node"),
                runs=_of(records, timed[layout]),
                rejected=_of(records, rejected.get(layout)),
            )
        )
    return sizes


def _of(records: Mapping[RunKey, Run], members: pd.DataFrame | None) -> tuple[Run, ...]:
    if members is None:
        return ()
    return tuple(records[RunKey(str(label), int(run))] for label, run in zip(members["label"], members["run"], strict=True))


def _efficiency(row: Mapping[str, Any], baseline: str) -> Ratio | None:
    """The efficiency as the table has it; None where the baseline is missing or larger than the layout."""
    share, low, high, kind = (_known(row[f"efficiency_{baseline}{what}"]) for what in ("", "_low", "_high", "_interval"))
    return None if share is None else Ratio(share, low, high, kind)


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value
