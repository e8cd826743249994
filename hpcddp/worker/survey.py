"""The job of `hpcddp clusters survey`: one process of each node tells what it is made of, then two nodes exchange messages.

Of a node: processors, GPUs and their links, adapters, disk, software; what no Slurm knows, read where every user may read it.
"""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_records import Adapter, LinkSurvey, NodeSurvey, SurveyRecord
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.launch_record import NodeFacts
from hpcddp.worker.binding import file_text
from hpcddp.worker.disk import read_disk
from hpcddp.worker.ranks import Rank
from hpcddp.worker.small_job import ANSWER_WITHIN_S, answer_file, answers, begin, leave, tried

SIZES = tuple(4**power for power in range(5, 14))
"""Bytes: 1 KiB to 64 MiB."""

OPERATION = "send_recv"

PROGRAM_WITHIN_S = 60
"""The first call of nvidia-smi on a node without its persistence daemon takes some seconds a GPU."""

_WORD = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"(GPU|NIC)\d+|mlx\d+_\w+|\w*hsn\d+|rdmap\w+|efa_\d+")
_LEGEND = re.compile(r"^\s*(NIC\d+): (\S+)\s*$", re.MULTILINE)
"""Of `nvidia-smi topo -m`: what joins two of its rows, its colours, its names of GPUs and adapters, and what these are called."""


def survey_rank(spec: dict[str, Any]) -> dict[str, Any]:
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
    silent = (
        f"no answer from node {missing} in {ANSWER_WITHIN_S:.0f} s: check that {folder} is the same folder on every node"
        if missing
        else ""
    )
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
    """Between the first and the last node, and what went wrong; neither of a single node. Other work on the nodes may slow all
    calls of the small sizes, which then are left out."""
    if rank.nodes < 2:
        return None, ""
    try:
        from hpcddp.worker.comm.bench import bench_comm
        from hpcddp.worker.rendezvous import join

        group = join(rank, job.point.device)
        fit = bench_comm(group, SIZES, (OPERATION,)).ops[OPERATION].fit
        group.leave()
    except (HpcddpError, RuntimeError, ImportError) as error:
        return None, f"{rank.host}: the nodes could not communicate: {error}"
    problem = f"the latency between the nodes is unknown; survey again ({fit.how})" if fit.latency_s is None else ""
    return LinkSurvey(latency_s=fit.latency_s, bytes_per_s=fit.bandwidth_bytes_per_s), problem


def survey_node(host: str) -> NodeSurvey:
    """Everything that can be learned; what cannot is a sentence among its problems."""
    from hpcddp.worker.launch_record import node_facts, versions

    problems: list[str] = []
    node = tried(problems, host, "the GPUs", lambda: node_facts(host))
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
        versions=tried(problems, host, "torch", versions) or {},
        arch_list=tried(problems, host, "torch's architectures", _arch_list) or (),
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
            ["env", "LC_ALL=C", *command], capture_output=True, text=True, check=True, timeout=PROGRAM_WITHIN_S
        ).stdout

    return tried(problems, host, command[0], run)


def parse_topology(text: str) -> dict[str, tuple[str, ...]]:
    """Of `nvidia-smi topo -m`: name -> row, in their order; empty where it is none. NIC0 and so on by their names."""
    lines = [line.split() for line in _COLOUR.sub("", text).splitlines()]
    header = next((words for words in lines if words and words[0] == "GPU0"), [])
    names = [word for word in header if _NAME.fullmatch(word)]
    called = dict(_LEGEND.findall(text))
    rows = {words[0]: tuple(words[1 : len(names) + 1]) for words in lines if words and words[0] in names and words != header}
    if set(rows) != set(names) or not all(len(row) == len(names) and all(map(_WORD.fullmatch, row)) for row in rows.values()):
        return {}
    return {called.get(name, name): rows[name] for name in names}


def parse_amd_topology(text: str) -> dict[str, tuple[str, ...]]:
    """The same of `rocm-smi --showtopo`: link types between two GPUs, with X for the GPU itself, which is 0 there."""
    _, _, section = text.partition("Link Type between two GPUs")
    rows = [line.split() for line in section.partition("Numa Nodes")[0].splitlines()]
    names = next((words for words in rows if words and words[0] == "GPU0"), [])
    matrix = {
        words[0]: tuple("X" if word == "0" else word for word in words[1:]) for words in rows if words[1:] and words != names
    }
    matrix = {name: row for name, row in matrix.items() if name in names}
    square = list(matrix) == names and all(
        len(row) == len(names) and set(row) <= {"X", "XGMI", "PCIE"} for row in matrix.values()
    )
    return matrix if square else {}


def read_adapters(sys: Path = Path("/sys")) -> tuple[Adapter, ...]:
    """Those that are up: ports that RDMA uses, and behind them the physical interfaces; those of one adapter stand in both."""
    ports = sorted(sys.glob("class/infiniband/*/ports/*"))
    return tuple(
        [_port(port) for port in ports if file_text(port / "state").endswith("ACTIVE")]
        + [_interface(link) for link in sorted(sys.glob("class/net/*")) if _is_up(link)]
    )


def _port(port: Path) -> Adapter:
    """Its rate is written `200 Gb/sec (4X HDR)`."""
    rate, number = file_text(port / "rate").partition(" ")[0], port.name
    kind = "InfiniBand" if file_text(port / "link_layer") == "InfiniBand" else "RoCE"
    name = port.parents[1].name if number == "1" else f"{port.parents[1].name}:{number}"
    return Adapter(name=name, gbps=_number(rate), kind=kind, gids=_gids(port) if kind == "RoCE" else {})


def _gids(port: Path) -> dict[str, str]:
    found = {}
    for gid in sorted(port.glob("gids/*"), key=lambda file: int(file.name)):
        if file_text(gid).replace(":", "").strip("0"):
            found[gid.name] = file_text(port / "gid_attrs" / "types" / gid.name) or "unknown"
    return found


def _is_up(link: Path) -> bool:
    """Of a device, and no bridge, loopback or virtual interface."""
    return (link / "device").exists() and file_text(link / "operstate") == "up"


def _interface(link: Path) -> Adapter:
    """Its speed is in Mb/s, -1 where it has none."""
    speed = _number(file_text(link / "speed"))
    kind = "Slingshot" if link.name.startswith("hsn") else "Ethernet"
    return Adapter(name=link.name, gbps=speed / 1000 if speed and speed > 0 else None, kind=kind)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
