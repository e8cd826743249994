"""One attempt from the first meeting of the ranks to end.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hpcddp.catalog import check_workload
from hpcddp.data import Source, TrainLoader, eval_batches, open_source
from hpcddp.errors import HpcddpError
from hpcddp.jobspec import JobSpec
from hpcddp.records import steps_file, write_json
from hpcddp.worker import gates
from hpcddp.worker.evaluate import combine, evaluate_share
from hpcddp.worker.finish import write_end
from hpcddp.worker.launch_record import launch_record, node_record
from hpcddp.worker.learner import Learner, make_learner
from hpcddp.worker.paths import data_root_as_given
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import Meeting, join
from hpcddp.worker.train import Trained, train

Evaluation = tuple[dict[str, Any], gates.Gate] | None
"""Counts and their gate, on rank 0."""


def run_attempt(spec: JobSpec, rank: Rank, attempt: Path) -> dict[str, Any]:
    """Meets, trains, evaluates, records; the summary of this rank. Errors are the caller's to record."""
    point = spec.point
    check_workload(point.workload)
    if rank.world != point.ranks or rank.nodes != point.layout.nodes:
        raise HpcddpError(
            f"the step has {rank.world} ranks on {rank.nodes} node(s), the point asks for {point.ranks} on {point.layout.nodes}: "
            f"look at --nodes and --ntasks-per-node"
        )
    meeting = join(rank, point.device)
    torch.backends.cudnn.benchmark = True  # all batches have one shape; as the original ResNet-50 study did
    source, loader = _training_data(spec, meeting)
    _record_launch(spec, meeting, attempt, samples=len(source))
    learner = make_learner(point.workload, source, meeting.device, rank.rank)
    trained = train(point, learner, loader, steps_file(attempt, rank.rank))
    evaluation = _evaluate(spec, meeting, learner) if point.measure.evaluate else None
    passed = _record_end(spec, meeting, attempt, trained, evaluation)
    meeting.leave()
    return {"point": point.id, "run": spec.run, "rank": rank.rank, "steps": trained.steps, "gates_passed": passed}


def _training_data(spec: JobSpec, meeting: Meeting) -> tuple[Source, TrainLoader]:
    workload = spec.point.workload
    source = open_source(workload.data, "train", data_root_as_given(spec))
    loader = TrainLoader(
        source,
        batch_size=workload.batch_per_gpu,
        rank=meeting.rank.rank,
        ranks=meeting.rank.world,
        workers=workload.loader_workers_per_rank,
        seed=workload.seed,
        pin_memory=meeting.device.type == "cuda",
    )
    return source, loader


def _record_launch(spec: JobSpec, meeting: Meeting, attempt: Path, *, samples: int) -> None:
    if meeting.rank.local_rank == 0:
        write_json(attempt / "nodes" / f"{meeting.rank.host}.json", node_record(meeting.rank.host))
    record = launch_record(spec, meeting, samples)
    if record:
        write_json(attempt / "launch.json", record)
        what = f"{spec.label}, run {spec.run}: {record['ranks']} rank(s) on {', '.join(record['hosts'])} by {meeting.backend}"
        print(f"hpcddp: {what}; records in {attempt}", flush=True)


def _evaluate(spec: JobSpec, meeting: Meeting, learner: Learner) -> Evaluation:
    """On rank 0 the whole set's `samples`, `correct` and `loss`, and whether all samples were counted; None elsewhere."""
    workload, rank = spec.point.workload, meeting.rank
    source = open_source(workload.data, "eval", data_root_as_given(spec))
    workers = workload.loader_workers_per_rank
    batches = eval_batches(source, batch_size=workload.batch_per_gpu, rank=rank.rank, ranks=rank.world, workers=workers)
    shares = meeting.gather("evaluation", evaluate_share(learner, batches))
    if not shares:
        return None
    counts = combine(shares)
    return counts, gates.evaluation_counts_every_sample(counts["samples"], len(source))


def _record_end(spec: JobSpec, meeting: Meeting, attempt: Path, trained: Trained, evaluation: Evaluation) -> bool | None:
    """Writes end.json on rank 0, when all ranks have closed their files; whether all gates passed, None on other ranks."""
    ranks = meeting.gather("trained", {**vars(trained), "rank": meeting.rank.rank, "host": meeting.rank.host})
    if not ranks:
        return None
    checked = _gates(ranks, trained.steps) + ([evaluation[1]] if evaluation else [])
    write_end(
        attempt,
        "done",
        None,
        gates=checked,
        ranks=[{key: entry[key] for key in ("rank", "host", "rows", "crc32")} for entry in ranks],
        global_batch=spec.point.global_batch,
        steps=trained.steps,
        loss_first=_mean([entry["loss_first"] for entry in ranks]),
        loss_last=_mean([entry["loss_last"] for entry in ranks]),
        evaluation=evaluation[0] if evaluation else None,
    )
    return all(gate["passed"] for gate in checked)


def _gates(ranks: list[dict[str, Any]], planned: int) -> list[gates.Gate]:
    return [
        gates.parameters_agree([entry["checksums"] for entry in ranks]),
        gates.loss_is_finite([entry["finite"] for entry in ranks]),
        gates.ranks_stepped_equally([entry["rows"] for entry in ranks], planned),
        gates.every_epoch_reshuffled([entry["repeated_epoch"] for entry in ranks], ranks[0]["epochs"]),
    ]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
