"""The parts of `clusters show` that are a profile's own tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.fact_text import WIDTH
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.show import show_cluster
from hpcddp.cluster.yamlfile import parse_yaml
from tests.golden import check

EVERYTHING = r"""
schema: 1
name: big
title: A site with everything
sources: {guide: the user guide, plugin: "the plug-in's notes"}
default_node_type: a100
node_types:
  a100:
    count: 100
    physical_cores: 64
    gpus: 4
    memory_mb: 480000
    constraint: a100
    links:
      topology:
        value: {GPU0: [X, NV4, PXB, SYS], GPU1: [NV4, X, SYS, PXB], mlx5_0: [PXB, SYS, X, SYS], mlx5_1: [SYS, PXB, SYS, X]}
        grade: C
        source: guide
      nvlink_gbs: {value: 25, grade: A, source: guide}
      socket_gbs: {value: null, grade: "?", source: guide, note: "ask"}
      pcie_gbs: 32
    local_disk_gbs: {value: 3.2, grade: B, source: guide}
  v100:
    gpus: 4
    physical_cores: 40
    partition: old
    gpu_request: gpus-per-node
    account_form: {pattern: '.*@v100', sentence: accounts for V100 end in @v100}
    cpu_masks: ["0x00fe000000000000", "0xfe00000000000000", "0x0000000000fe0000", "0x00000000fe000000"]
slurm:
  account_form: {pattern: '\w+_g', sentence: GPU accounts end in _g}
  memory_option: {value: nonzero, grade: A, source: guide}
  always_exclusive: {value: null, grade: "?", source: guide}
  one_thread_per_core: hint
  options: [--gres-flags=disable-binding, --network=disable_rdzv_get]
  srun_options: [--gpu-bind=none]
  partitions:
    main:
      node_types: [a100]
      default: {value: true, grade: B, source: guide}
      max_nodes: {value: 64, grade: C, source: guide, conflicts: [{value: 32, grade: C, source: guide}]}
      max_walltime_min: 1440
      default_walltime_min: 30
      max_mb_per_core: 4000
    large: {node_types: [a100], min_nodes: 65, max_walltime_min: 720}
    old: {node_types: [v100], max_nodes: 8, max_walltime_min: {value: null, grade: "?", source: guide}, qos: [t3, dev]}
  qos:
    - {partition: main, max_walltime_min: 1200}
    - {name: t3, automatic: true, node_types: [v100], partition: old, max_walltime_min: 1200, max_gpus: 512}
    - {name: dev, automatic: true, intent: debug, node_types: [v100], partition: old, max_gpus: 32, max_cpus: 400}
    - {name: big, automatic: false, min_nodes: 65, partition: large}
rendezvous: {master_suffix: i}
fabric: {name: Slingshot 11, gbps_per_node: 800, protocol: rdma, burst_gbps: 900}
storage:
  scratch: {path: /scratch, gbs: {value: 200, grade: C, source: guide}, iops: null}
  flash: {path: /flash, gbs: 1000, iops: 2e6}
compute:
  kind: container
  container: {image: /images/torch.sif, runtime: apptainer, binds: [/scratch, "/etc/x:/y"], gpus: amd}
env_rules:
  - {name: NCCL_NET, value: AWS Libfabric, when: {nodes: ">1"}, source: plugin}
  - name: NCCL_IB_GID_INDEX
    command: |
      for file in /sys/class/infiniband/*/ports/1/gid_attrs/types/*; do
        grep -l v2 "$file"
      done | head -1
    when: {fabric: RoCE, nccl: "<2.21", node_type: [a100, v100]}
    source: plugin
  - {name: X, value: "1", source: guide}
"""

HEAD = "schema: 1\nname: small\ntitle: A site\n"


def read(tmp_path: Path, text: str) -> ClusterProfile:
    file = tmp_path / "big.yaml"
    file.write_text(text)
    return read_profile(file)


def part(tmp_path: Path, text: str, title: str) -> list[str]:
    """The lines of the part that has this title, of a small profile with this text."""
    parts = show_cluster(read(tmp_path, HEAD + text)).split("\n\n")
    return next(lines for lines in map(str.splitlines, parts) if lines[0] == title)


def leaves(data: Any) -> Iterator[str]:
    """The words and numbers of a document, keys left out."""
    if isinstance(data, dict):
        for item in data.values():
            yield from leaves(item)
    elif isinstance(data, list):
        for item in data:
            yield from leaves(item)
    elif data is not None and not isinstance(data, bool):
        yield f"{data:g}" if isinstance(data, float) and data < 1e5 else f"{data:,.0f}" if isinstance(data, float) else str(data)


def test_everything(tmp_path: Path) -> None:
    """A profile with every kind of rule, as its golden."""
    check("clusters/show-everything.txt", show_cluster(read(tmp_path, EVERYTHING)) + "\n")


def test_nothing_is_left_out(tmp_path: Path) -> None:
    """Every value of the file is there, within 100 columns."""
    text = show_cluster(read(tmp_path, EVERYTHING))
    words = " ".join(text.split())
    assert [leaf for leaf in leaves(parse_yaml(EVERYTHING, "x")) if " ".join(leaf.split()) not in words] == []
    assert max(map(len, text.splitlines())) <= WIDTH


def test_columns_are_in_the_order_of_the_keys(tmp_path: Path) -> None:
    """As the reference has them, whichever rule has which; a column that no rule fills is left out."""
    text = "slurm: {qos: [{max_nodes: 4, max_walltime_min: 30}, {name: big, min_nodes: 5, partition: all}]}\n"
    assert part(tmp_path, text, "Limits per QOS") == [
        "Limits per QOS",
        "  qos             partition  min_nodes  max_nodes  max_walltime_min",
        "  none asked for  -                  -          4                30",
        "  big             all                5          -                 -",
    ]


def test_what_is_too_wide_for_a_table(tmp_path: Path) -> None:
    """Rules are listed one by one, and a matrix has no header, both within 100 columns."""
    types = [f"a-kind-of-node-with-a-long-name-{i}" for i in range(4)]
    devices = [f"GPU{i}" for i in range(8)] + [f"mlx5_{i}" for i in range(12)]
    rows = "\n".join(f"        {a}: [{', '.join('X' if a == b else 'NV18' for b in devices)}]" for a in devices)
    text = (
        f"node_types:\n  {types[0]}:\n    gpus: 8\n    links:\n      topology:\n{rows}\n"
        + "".join(f"  {name}: {{}}\n" for name in types[1:])
        + f"slurm:\n  partitions:\n    one: {{node_types: [{', '.join(types)}], max_nodes: 4}}\n"
    )
    lines = part(tmp_path, text, "Partitions")
    assert lines[1].startswith(f"  one  node_types {types[0]}, {types[1]},")
    assert lines[-1].endswith("max_nodes 4")
    matrix = part(tmp_path, text, f"Topology of {types[0]}")
    assert matrix[1].startswith("  GPU0     X NV18 NV18")
    assert max(map(len, [*lines, *matrix])) <= WIDTH


@pytest.mark.parametrize(
    "text",
    [
        "links: {nvlink_gbs: {value: null, grade: '?', source: a}}",
        "local_disk_gbs: {value: null, grade: '?', source: a}",
        "cpu_masks: {value: [], grade: '?', source: a}",
    ],
)
def test_a_key_that_is_known_to_be_unknown(tmp_path: Path, text: str) -> None:
    """A fact without a value is shown as that, also of keys that most profiles do not have."""
    shown = part(tmp_path, f"sources: {{a: b}}\nnode_types:\n  n:\n    {text}\n", "Node type n")
    assert [line.split()[-2:] for line in shown[1:]] == [["unknown", "[?]"]]
