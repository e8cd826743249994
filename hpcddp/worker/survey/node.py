"""What one node says of itself: processors, GPUs and their links, adapters, disk, software."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import TypeVar

from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.survey_record import NodeSurvey
from hpcddp.worker.survey.adapters import read_adapters
from hpcddp.worker.survey.disk import read_disk
from hpcddp.worker.survey.topology import parse_amd_topology, parse_topology

T = TypeVar("T")

ANSWER_WITHIN_S = 60
"""The first call of nvidia-smi on a node without its persistence daemon takes some seconds a GPU."""


def survey_node(host: str) -> NodeSurvey:
    """Everything that can be learned; what cannot is a sentence among its problems."""
    from hpcddp.worker.launch_record import node_facts, versions

    problems: list[str] = []
    node = _tried(problems, host, "the GPUs", lambda: node_facts(host))
    cpus = parse_lscpu(_output(problems, host, "lscpu") or "")
    topology = _topology(problems, host, node) if node is not None and node.gpus and node.gpu_driver is not None else {}
    sockets, per_socket = cpus.get("Socket(s)"), cpus.get("Core(s) per socket")
    return NodeSurvey(
        host=host,
        node=node,
        sockets=sockets,
        cores=None if sockets is None or per_socket is None else sockets * per_socket,
        threads_per_core=cpus.get("Thread(s) per core"),
        topology=topology,
        adapters=read_adapters(),
        disk=read_disk(),
        versions=_tried(problems, host, "torch", versions) or {},
        arch_list=_tried(problems, host, "torch's architectures", _arch_list) or (),
        problems=tuple(problems),
    )


def parse_lscpu(text: str) -> Mapping[str, int]:
    """Its whole numbers by name, of a call in the C locale."""
    pairs = (line.partition(":")[::2] for line in text.splitlines())
    return {name.strip(): int(value) for name, value in pairs if value.strip().isdecimal()}


def _topology(problems: list[str], host: str, node: NodeFacts) -> dict[str, tuple[str, ...]]:
    """Of a node that has GPUs and their driver; AMD's say their architecture where NVIDIA's have a number."""
    if node.gpus[0].capability.startswith("gfx"):
        return parse_amd_topology(_output(problems, host, "rocm-smi", "--showtopo") or "")
    return parse_topology(_output(problems, host, "nvidia-smi", "topo", "-m") or "")


def _arch_list() -> tuple[str, ...]:
    import torch

    return tuple(torch.cuda.get_arch_list())


def _output(problems: list[str], host: str, *command: str) -> str | None:
    def run() -> str:
        return subprocess.run(
            ["env", "LC_ALL=C", *command], capture_output=True, text=True, check=True, timeout=ANSWER_WITHIN_S
        ).stdout

    return _tried(problems, host, command[0], run)


def _tried(problems: list[str], host: str, what: str, ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except Exception as error:
        problems.append(f"{host}: {what}: {type(error).__name__}: {error}")
        return None
