"""The records of an attempt as a whole: launch.json and nodes/ when the ranks have met, end.json when all have trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcddp.core.jobspec import JobSpec
from hpcddp.core.records import write_json
from hpcddp.worker.checks import run_gates
from hpcddp.worker.finish import write_end
from hpcddp.worker.gates import Gate
from hpcddp.worker.launch_record import launch_record, node_record
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.evaluate import Evaluation

OF_RANK = ("rank", "host", "rows", "crc32", "bucket_rows", "bucket_crc32", "clock", "peak_memory_bytes", "page_faults")
"""What end.json says of each rank."""


def record_launch(
    spec: JobSpec, group: ProcessGroup, attempt: Path, *, samples: int, watched: dict[str, Any] | None = None, **facts: Any
) -> None:
    """`watched`: what telemetry reads on this node; `facts`: more of launch.json, as rank 0 has it."""
    if group.rank.local_rank == 0:
        write_json(attempt / "nodes" / f"{group.rank.host}.json", {**node_record(group.rank.host), "telemetry": watched})
    record = launch_record(spec, group, samples)
    if record:
        write_json(attempt / "launch.json", {**record, **facts})
        what = f"{spec.label}, run {spec.run}: {record['ranks']} rank(s) on {', '.join(record['hosts'])} by {group.backend}"
        print(f"hpcddp: {what}; records in {attempt}", flush=True)


def record_end(  # noqa: PLR0913 - what all ranks found, and what rank 0 knows beside it
    spec: JobSpec,
    group: ProcessGroup,
    attempt: Path,
    told: dict[str, Any],
    evaluation: Evaluation | None,
    *,
    early_gates: list[Gate],
    **facts: Any,
) -> bool | None:
    """Writes end.json on rank 0, when all ranks have closed their files; whether all gates passed, None on other ranks.

    `told`: what this rank has to tell, of train_timed; `early_gates`: of before the first step; `facts`: more of end.json, as
    rank 0 has it.
    """
    ranks = group.gather("trained", {**told, "rank": group.rank.rank, "host": group.rank.host})
    if not ranks:
        return None
    checked = early_gates + run_gates(spec, ranks, facts.get("telemetry")) + ([evaluation[1]] if evaluation else [])
    write_end(
        attempt,
        "interrupted" if told["interrupted"] else "done",
        told["reason"],
        gates=checked,
        ranks=[{key: entry[key] for key in OF_RANK if entry[key] is not None} for entry in ranks],
        global_batch=spec.point.global_batch,
        first_step=told["first_step"],
        steps=told["steps"],
        protocol=told["protocol"],
        loss_first=_mean([entry["loss_first"] for entry in ranks]),
        loss_last=_mean([entry["loss_last"] for entry in ranks]),
        evaluation=evaluation[0] if evaluation else None,
        **facts,
    )
    return all(gate["passed"] for gate in checked)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
