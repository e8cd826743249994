"""The smoke test: one short job that shows, before anything else is submitted, whether workers can run there."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hpcddp.core.catalog import is_factory
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_records import SmokeData, SmokeFindings, SmokeSummary
from hpcddp.core.jobspec import JobSpec, data_root, data_root_as_given
from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.point import FROM_LIBRARY, LIBRARY_MODULE, Data
from hpcddp.core.prepared import FILES, unprepared
from hpcddp.worker import small_job
from hpcddp.worker.ranks import Rank
from hpcddp.worker.script_imports import import_problems

MEET_WITHIN = timedelta(minutes=4)
"""A first import of torch by every node at once may take minutes on a parallel file system; the job has ten."""


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Every rank leaves its findings in a folder of the job; rank 0 writes smoke.json from them and returns its content.

    Other ranks return their own findings.
    """
    job, rank, study = small_job.begin(spec)
    folder = study.smoke_dir(rank.job)
    findings = small_job.leave(small_job.answer_file(folder / "smoke", rank.rank), examine(job, rank))
    if rank.rank:
        return findings
    found, silent = small_job.answers(SmokeFindings, folder / "smoke", rank.world)
    return small_job.leave(folder / "smoke.json", summarize(job, found, silent))


def examine(job: JobSpec, rank: Rank) -> SmokeFindings:
    """What one rank finds; whatever goes wrong is a sentence under `problems`."""
    problems: list[str] = []
    root = small_job.tried(problems, rank.host, "the data folder", data_root, job)
    readable = None if root is None else os.path.isdir(root) and os.access(root, os.R_OK | os.X_OK)
    if readable and root is not None and rank.local_rank == 0 and job.point.reads_data:
        small_job.tried(problems, rank.host, "the data cannot be read", _open_data, job.point.workload.data, root)
    for name in _needed_modules(job):
        small_job.tried(problems, rank.host, f"cannot import {name}", importlib.import_module, name)
    found = _TorchFindings()
    small_job.tried(problems, rank.host, "torch does not work", found.examine, rank, job.point.device)
    if job.script and found.summed:
        small_job.tried(problems, rank.host, "the script's imports", lambda: problems.extend(import_problems(job, rank)))
    return SmokeFindings(
        rank=rank.rank,
        host=rank.host,
        data_root=root,
        data_seen=readable,
        problems=tuple(problems),
        versions=found.versions,
        node=found.node,
        summed=found.summed,
    )


def summarize(job: JobSpec, found: Sequence[SmokeFindings], silent: str) -> SmokeSummary:
    """The findings of all ranks in one summary; `found` in the order of ranks, `silent`: those that did not answer."""
    problems = [problem for each in found for problem in each.problems]
    if silent:
        within = f"{small_job.ANSWER_WITHIN_S:.0f} s"
        problems.append(f"no answer from rank {silent} in {within}: is {job.study} the same folder on every node?")
    found_on = _hosts(found, readable=True)
    missing_on = [host for host in _hosts(found, readable=False) if host not in found_on]
    root = data_root_as_given(job)
    if missing_on:
        problems.append(f"the data folder {root} is not there, or not readable, on {', '.join(missing_on)}")
    return SmokeSummary(
        ok=not problems,
        problems=tuple(dict.fromkeys(problems)),
        node_type=job.point.layout.node_type or _default_node_type(job),
        data=SmokeData(root=root, seen_by=tuple(found_on), missing_on=tuple(missing_on)),
        ranks=tuple(found),
    )


def _open_data(data: Data, root: str) -> None:
    """HpcddpError where a run would not find its data, or other data; a folder of a million pictures is not listed for that."""
    found = unprepared(data, Path(root))
    if found is not None:
        raise HpcddpError(found.text)
    if data.name in FILES and not (data.name == "imagenet" and not (Path(root) / FILES["imagenet"][0]).is_file()):
        from hpcddp.data.opening import open_source

        open_source(data, "train", root)


def _default_node_type(job: JobSpec) -> str | None:
    name = job.profile.get("default_node_type")
    return name if isinstance(name, str) else None


def _needed_modules(job: JobSpec) -> list[str]:
    if job.script:
        return ["torch"]
    names = [job.point.workload.model, job.point.workload.data.name]
    own = [name.partition(":")[0] for name in names if is_factory(name)]
    vision = not is_factory(names[0]) and names[0] not in ("mnist-cnn", "none")
    library = [LIBRARY_MODULE] if job.point.workload.optimizer.name in FROM_LIBRARY else []
    decoder = [job.point.workload.data.decoder] if job.point.workload.data.decoder in ("simplejpeg", "torchvision") else []
    return ["torch", *(["torchvision"] if vision else []), *decoder, *library, *own]


@dataclass
class _TorchFindings:
    """What is known by the time that something goes wrong."""

    versions: Mapping[str, str | None] | None = None
    node: NodeFacts | None = None
    summed: int | None = None

    def examine(self, rank: Rank, device: str) -> None:
        """Versions and GPUs, then one sum over all ranks by the way that training will take."""
        import torch
        import torch.distributed as dist

        from hpcddp.worker.launch_record import node_facts, versions
        from hpcddp.worker.rendezvous import join

        self.versions, self.node = versions(), node_facts(rank.host)
        group = join(rank, device, MEET_WITHIN)
        ones = torch.ones(1, device=group.device)
        dist.all_reduce(ones)
        group.leave()
        self.summed = int(ones.item())
        if self.summed != rank.world:
            raise HpcddpError(f"a sum of ones over {rank.world} ranks came out as {self.summed}")


def _hosts(found: Sequence[SmokeFindings], *, readable: bool) -> list[str]:
    return list(dict.fromkeys(each.host for each in found if each.data_seen is readable))
