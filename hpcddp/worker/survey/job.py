"""The job of `hpcddp clusters survey`: one process of each node surveys it, then the ranks time messages between two nodes."""

from __future__ import annotations

import datetime
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_records import LinkSurvey, NodeSurvey, SurveyRecord
from hpcddp.core.jobspec import JobSpec
from hpcddp.worker.ranks import Rank
from hpcddp.worker.small_job import ANSWER_WITHIN_S, answer_file, answers, begin, leave
from hpcddp.worker.survey.node import survey_node

SIZES = tuple(4**power for power in range(5, 14))
"""Bytes: 1 KiB to 64 MiB."""

OPERATION = "send_recv"


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Of each rank; rank 0 writes survey.json and returns its content, others return what they found."""
    job, rank, study = begin(spec)
    folder = study.survey_dir(rank.job)
    found: dict[str, Any] = {}
    if rank.local_rank == 0:
        found = leave(answer_file(folder / "nodes", rank.rank // rank.ranks_per_node), survey_node(rank.host))
    link, problem = _link(job, rank)
    if rank.rank:
        return found
    nodes, missing = answers(NodeSurvey, folder / "nodes", rank.nodes)
    silent = f"no answer from node {missing} in {ANSWER_WITHIN_S:.0f} s: is {folder} the same on every node?" if missing else ""
    record = SurveyRecord(
        date=datetime.date.today().isoformat(),
        job=rank.job,
        node_type=job.point.layout.node_type,
        nodes=tuple(nodes),
        link=link,
        problems=tuple(filter(None, (problem, silent))),
    )
    return leave(folder / "survey.json", record)


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
