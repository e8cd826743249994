"""How much of its node a job has. Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from hpcddp.core.jobspec import JobSpec
from hpcddp.core.launch_record import ProfileFacts
from hpcddp.core.schema import decode_record
from hpcddp.worker.rank_result import NodeShare
from hpcddp.worker.ranks import Rank


def node_share(spec: JobSpec, rank: Rank, env: Mapping[str, str] = os.environ) -> NodeShare:
    """The CPUs that Slurm gave the job on this node, None outside Slurm, of those that it has.

    Where the profile does not say how many it has, these are its cores: Slurm counts cores or their threads, so a job with as
    many CPUs as there are cores may have the entire node.
    """
    cpus = job_cpus(env) if spec.backend == "slurm" else None
    return NodeShare(host=rank.host, cpus=cpus, of=_node_cpus(spec) or machine_cores())


def job_cpus(env: Mapping[str, str]) -> int | None:
    """The job's CPUs on this node; None where Slurm does not say. SLURM_JOB_CPUS_PER_NODE counts runs of nodes, `48(x2),40`, in
    every step too, where SLURM_CPUS_ON_NODE is the step's alone: 2 of 48 in a step of two tasks (Slurm 22.05)."""
    runs = re.findall(r"(\d+)(?:\(x(\d+)\))?", env.get("SLURM_JOB_CPUS_PER_NODE", ""))
    by_node = [int(cpus) for cpus, times in runs for _ in range(int(times or 1))]
    node = int(env.get("SLURM_NODEID") or 0)
    return by_node[node] if node < len(by_node) else None


def machine_cores(cpus: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Physical cores of this machine (Linux, admin-guide/cputopology); its logical CPUs where it does not tell."""
    siblings = {file.read_text(encoding="ascii") for file in cpus.glob("cpu[0-9]*/topology/thread_siblings_list")}
    return len(siblings) or os.cpu_count()


def _node_cpus(spec: JobSpec) -> int | None:
    """Logical CPUs of the point's node type, as its profile has them; None where it does not."""
    node_type = decode_record(ProfileFacts, spec.profile).node_type(spec.point.layout.node_type)
    return None if node_type.physical_cores is None else node_type.physical_cores * (node_type.smt or 1)
