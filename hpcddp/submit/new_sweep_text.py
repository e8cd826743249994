"""What a new sweep says: YAML, each line with what it means on that cluster, and what else could stand there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_names import own_folder
from hpcddp.cluster.yamlfile import dump_yaml
from hpcddp.core.catalog import is_on_disk
from hpcddp.core.point import Data
from hpcddp.core.schema import decode
from hpcddp.core.text import count
from hpcddp.sweep.shipped import SCHEMA

WALLTIME_MIN = 20
"""Of a run: 550 steps take minutes, starting up to one."""

COMMENTS_AT = 40
"""Column of the comments."""

Lines = Iterator[tuple[str, str]]
"""Text and comment of each line."""


@dataclass(frozen=True)
class Start:
    """What the sweep begins with."""

    profile: ClusterProfile
    file: Path
    """Where the sweep will be."""
    workload: Mapping[str, Any]
    gpus: Sequence[int]
    """Numbers of GPUs on one node, the last of them those of all other points."""
    nodes: Sequence[int]
    """Numbers of nodes."""

    @property
    def is_local(self) -> bool:
        return self.profile.backend == "local"

    @property
    def cluster(self) -> str:
        """As the sweep names it: a file by its path from the sweep's."""
        file = self.profile.file
        if file is None or Path(file).parent == own_folder():
            return self.profile.name
        path = os.path.relpath(file, self.file.parent)
        return path if path.startswith("../") else f"./{path}"


def sweep_text(start: Start) -> str:
    """The file, its comments in one column."""
    parts = (_head, _training, _layout, _points, _measuring, _slurm)
    lines = [line for part in parts for line in part(start)]
    return "".join(f"{text:<{COMMENTS_AT - 2}}  # {words}\n" if words else f"{text}\n" for text, words in lines)


def _head(start: Start) -> Lines:
    profile, file = start.profile, shlex.quote(start.file.name)
    sizes = "1 and 2 ranks" if start.is_local else _sizes(start)
    made = f"hpcddp init --cluster {profile.name if profile.file is None else start.cluster}"
    for text in (
        f"{start.workload['model']} on {start.workload['data']['name']}, {profile.title}: {sizes}.",
        f"Made by `{made}`; every line is yours to change.",
        "",
        f"  hpcddp plan {file:<30} what it comes to, in points and node hours",
        f"  hpcddp submit {file:<28} asks first",
        f"  hpcddp analyze {file:<27} tables and figures",
        f"yaml-language-server: $schema={SCHEMA}",
    ):
        yield f"# {text}".rstrip(), ""
    yield "schema: 1", ""
    yield f"cluster: {dump_yaml(start.cluster, on_one_line=True)}", ""


def _sizes(start: Start) -> str:
    """What the groups vary, in words."""
    nodes = f"1 to {start.nodes[-1]} nodes" if start.nodes[1:] else "one node"
    return f"GPUs of one node, then {nodes}" if start.gpus[1:] and start.nodes[1:] else nodes


def _training(start: Start) -> Lines:
    yield "hold: batch_per_gpu", "the work of a GPU stays the same; global_batch: that of all together (strong scaling)"
    yield "work: steps", "each timed; epoch: one pass over the data; train: a training with evaluation"
    yield "workload:", ""
    data = decode(Data, start.workload["data"])
    folder = "its folder: `root:` here, or `data_roots` in your settings" if is_on_disk(data) and data.root is None else ""
    words = {
        "model": "or PACKAGE.MODULE:FACTORY, a function of yours",
        "data": folder or "random images, nothing to prepare" * data.name.startswith("synthetic-"),
        "precision": "fp16, bf16: autocast",
        "batch_per_gpu": "as many as the memory of a GPU holds, or as your training needs",
        "loader_workers_per_rank": "processes that load data for one GPU",
    }
    for key, value in start.workload.items():
        yield f"  {key}: {dump_yaml(value, on_one_line=True)}", words.get(key, "")


def _layout(start: Start) -> Lines:
    profile = start.profile
    yield "layout:", ""
    if start.is_local:
        yield "  physical_cores_per_rank: 1", "one thread a rank: else a single rank takes the machine and nothing scales"
        return
    yield f"  gpus_per_node: {start.gpus[-1]}", "all of a node"
    chosen = str(profile.default_node_type)
    yield f"  node_type: {dump_yaml(chosen, on_one_line=True)}", _nodes_in_words(profile, chosen)
    for name in profile.node_types:
        if name != chosen:
            yield "", f"also {name}: {_nodes_in_words(profile, name)}"
    yield "  exclusive: true", "nobody else's jobs there: they slow a baseline, which makes a speedup look larger"


def _nodes_in_words(profile: ClusterProfile, name: str) -> str:
    """How many nodes of that type there are, and what is in them."""
    node = profile.node_types[name]
    number = count(node.count, "node") if node.count else "nodes"
    return f"{number} of {node.gpus or '?'} {node.gpu or 'GPUs'}"


def _points(start: Start) -> Lines:
    yield "points:", "groups, each a product of its axes; equal points are run once"
    if start.is_local:
        yield f"  ranks: {{layout.gpus_per_node: {list(start.gpus)}}}", "with `device: cpu`, a rank wherever a GPU would be"
        return
    if start.gpus[1:]:
        yield f"  in-node: {{layout.gpus_per_node: {list(start.gpus)}}}", ""
    yield f"  nodes: {{layout.nodes: {list(start.nodes)}}}", f"{count(start.gpus[-1], 'GPU')} on each"
    largest = start.nodes[-1]
    yield f"  # breakdown: {{layout.nodes: [{largest}], measure.comm: [off, on]}}", "communication, bucket by bucket"
    yield (
        f"  # limits: {{layout.nodes: [{largest}], measure.input: [full, synthetic, io]}}",
        "of the trainer and of the loader, apart",
    )


def _measuring(start: Start) -> Lines:
    steps = "{warmup_steps: 10, steps: 100}" if start.is_local else "{warmup_steps: 50, steps: 500}"
    yield f"measure: {steps}", "the first ones count in no statistic"
    yield "repeat: 3", "from six on, medians come with a 95 % interval"
    if start.is_local:
        yield "device: cpu", ""
    else:
        yield "# budget: {node_hours: 10}", "submit refuses more than this"


def _slurm(start: Start) -> Lines:
    rules = start.profile.rules_of(start.profile.node_type(None))
    if rules.account_required and not start.is_local:
        form = f"; {rules.account_form.sentence}" if rules.account_form else ""
        yield "# account: NAME", f"needed here, or in your settings, or SBATCH_ACCOUNT{form}"
    yield "slurm:", ""
    yield f"  walltime_min: {WALLTIME_MIN}", "of each run"
    named = list(dict.fromkeys(rule.name for rule in rules.qos if rule.name))
    if named and not start.is_local:
        others = f"or {', '.join(named[1:])}; " if named[1:] else ""
        yield f"  # qos: {dump_yaml(named[0], on_one_line=True)}", f"{others}limits: `{start.profile.show_command}`"
