"""The job of `hpcddp clusters survey`: one process of each node surveys it, then the ranks time messages between two nodes."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, spec_from_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record, encode
from hpcddp.core.survey_record import LinkSurvey, NodeSurvey, SurveyRecord
from hpcddp.worker.answers import ANSWER_WITHIN_S, answered
from hpcddp.worker.ranks import Rank, this_rank
from hpcddp.worker.survey.node import survey_node

SIZES = tuple(4**power for power in range(5, 14))
"""Bytes: 1 KiB to 64 MiB."""

OPERATION = "send_recv"


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Of each rank; rank 0 writes survey.json and returns its content, others return what they found."""
    job = spec_from_dict(spec)
    rank = this_rank(job.backend)
    folder = Study(Path(job.study)).survey_dir(rank.job)
    found: dict[str, Any] = {}
    if rank.local_rank == 0:
        found = encode(survey_node(rank.host))
        write_json(folder / "nodes" / f"{rank.rank // rank.ranks_per_node:05d}.json", found)
    link, problem = _link(job, rank)
    if rank.rank:
        return found
    nodes, silent = _answers(folder, rank)
    record = SurveyRecord(
        date=datetime.date.today().isoformat(),
        job=rank.job,
        node_type=job.point.layout.node_type,
        nodes=tuple(nodes),
        link=link,
        problems=tuple(filter(None, (problem, silent))),
    )
    summary: dict[str, Any] = encode(record)
    write_json(folder / "survey.json", summary)
    return summary


def _link(job: JobSpec, rank: Rank) -> tuple[LinkSurvey | None, str]:
    """Between the first and the last node, and what went wrong; neither of a single node.

    Other work on the nodes may slow all calls of the small sizes, which then are left out.
    """
    if rank.nodes < 2:
        return None, ""
    try:
        from hpcddp.worker.comm.bench import bench_comm
        from hpcddp.worker.rendezvous import join

        group = join(rank, job.point.device)
        fit = bench_comm(group, SIZES, (OPERATION,)).ops[OPERATION].fit
        group.leave()
    except (HpcddpError, RuntimeError, ImportError) as error:
        return None, f"{rank.host}: the nodes could not talk: {error}"
    problem = f"the latency between the nodes is not known, survey again ({fit.how})" if fit.latency_s is None else ""
    return LinkSurvey(latency_s=fit.latency_s, bytes_per_s=fit.bandwidth_bytes_per_s), problem


def _answers(folder: Path, rank: Rank) -> tuple[list[NodeSurvey], str]:
    """What the nodes left, as soon as all have, or what is there when the time is over, and who did not answer."""
    files = [folder / "nodes" / f"{node:05d}.json" for node in range(rank.nodes)]
    there = answered(files)
    missing = ", ".join(str(int(file.stem)) for file in files if file not in there)
    silent = f"no answer from node {missing} in {ANSWER_WITHIN_S:.0f} s: is {folder} the same on every node?" if missing else ""
    return [decode_record(NodeSurvey, json.loads(file.read_text(encoding="utf-8"))) for file in there], silent
