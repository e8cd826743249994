"""The network of a study's newest attempt, in a line of `status`."""

from __future__ import annotations

import os
from pathlib import Path

from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.transport_record import NodeAdapters, TransportRecord
from hpcddp.study.study_status import newest_network_words

NODE = NodeAdapters(found=("mlx5_0",), used=("mlx5_0",))


def record(folder: Path, job: str, age_s: int, transport: TransportRecord) -> Path:
    file = folder / "n02-g4-b32-3fa9c1d2e07b" / "r1" / f"{job}.0" / "transport.json"
    write_json(file, encode(transport))
    os.utime(file, (10_000 - age_s, 10_000 - age_s))
    return file


def test_the_newest_attempts_network(tmp_path: Path) -> None:
    """None without a record, of a damaged one, and of ranks on processors of one node."""
    study = Study(tmp_path)
    assert newest_network_words(study) is None
    record(tmp_path, "7", 90, TransportRecord(schema=1, library="gloo", nodes={"r1": NodeAdapters(used=("lo",))}))
    assert newest_network_words(study) is None
    nodes = {"r1": NODE, "r2": NODE}
    record(
        tmp_path,
        "8",
        60,
        TransportRecord(schema=1, library="NCCL", version="2.28.9", networks=("IB",), links=("IB",), nodes=nodes),
    )
    assert newest_network_words(study) == "network: NCCL 2.28.9 over InfiniBand (IB), 1 adapter a node (mlx5_0)"
    gloo = {"r1": NodeAdapters(used=("ib0",)), "r2": NodeAdapters(used=("ib0",))}
    newest = record(tmp_path, "9", 30, TransportRecord(schema=1, library="gloo", nodes=gloo))
    assert newest_network_words(study) == "network: gloo over ib0"
    newest.write_text("{")
    assert newest_network_words(study) is None
