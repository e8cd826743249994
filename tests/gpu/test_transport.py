"""What NCCL says of its network, and torch of its collectives: on one GPU of a group of one, on several of a run."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddp.core.jobspec import ScriptPlace, spec_to_dict
from hpcddp.core.point import Layout, Measure, Point, Workload
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.study_files import describe_point
from hpcddp.worker.comm.transport import first_collective
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.watchdog.flight_recorder import SIZE, SIZE_BEFORE_2_9, dump_function, group_states
from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import need_gpus, touches
from tests.gpu.results import Figures
from tests.worker import given

CALLS = 500


def said_by_nccl() -> dict[str, Any]:
    group = join(this_rank("local"), "cuda")
    found = first_collective(group.device)
    left = [name for name in os.environ if name.startswith("NCCL_DEBUG")]
    dist.destroy_process_group()
    return {"said": encode(found), "left": left}


@touches(
    "hpcddp/worker/comm/transport.py",
    "hpcddp/worker/comm/nccl_log.py",
    stand_in="the lines of NCCL's log are written beforehand",
)
def test_nccl_says_its_version_and_network(tmp_path: Path) -> None:
    """In a group of one: the log of the installed NCCL is one that is understood, and it leaves no variable."""
    (found,) = ranks.values(tmp_path, 1, said_by_nccl)
    assert found["left"] == []
    assert found["said"]["library"] in ("NCCL", "RCCL")
    assert found["said"]["version"]
    assert found["said"]["network"]


@touches(
    "hpcddp/worker/comm/transport.py",
    "hpcddp/core/transport_record.py",
    stand_in="the lines of NCCL's log are written beforehand",
)
def test_a_run_says_how_its_gpus_are_joined(tmp_path: Path) -> None:
    need_gpus(2)
    attempt = ranks.run_point(tmp_path, ranks.gpu_point())
    attempt.check_done()
    record = json.loads((attempt.folder / "transport.json").read_text(encoding="utf-8"))
    assert record["unknown"] is None
    assert record["version"]
    assert sum(record["in_node"].values()) > 0
    assert not any(name.startswith("NCCL_DEBUG") for name in attempt.launch["environment"])


SCRIPT = """\
import os

import torch
import torch.distributed as dist

from hpcddp.probe import measure

dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
model = torch.nn.Linear(8, 4).to(torch.device("cuda", gpu))
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[gpu])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with measure(model, optimizer, samples_per_step=4) as steps:
    for batch in steps([torch.randn(4, 8)] * 999):
        loss = model(batch.to(torch.device("cuda", gpu))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""


@touches(
    "hpcddp/worker/script_run.py",
    "hpcddp/worker/comm/transport.py",
    stand_in="the script is one on processors, and the lines of NCCL's log are written beforehand",
)
def test_a_script_says_how_its_gpus_are_joined(tmp_path: Path) -> None:
    """Its process group is made by itself, before it measures: the log has begun by then."""
    need_gpus(2)
    study, script = Study(tmp_path / "study"), tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    point = Point(
        cluster="local",
        workload=Workload(script="train.py"),
        layout=Layout(nodes=1, gpus_per_node=2),
        measure=Measure(warmup_steps=4, steps=8, telemetry_hz=0.0),
        device="cuda" if is_real() else "cpu",
    )
    describe_point(study, point)
    spec = given.job(study.folder, point, script=ScriptPlace(file=str(script), folder=str(tmp_path)))
    ranks.values(tmp_path / "output", 2, run, spec_to_dict(spec))
    record = json.loads((spec.attempt_dir("7", 0) / "transport.json").read_text(encoding="utf-8"))
    assert (record["unknown"], sum(record["in_node"].values()) > 0) == (None, True)


def recorded(calls: int, size: str) -> dict[str, Any]:
    """So many all-reduces: host time of one, and what the flight recorder has of them."""
    os.environ[SIZE_BEFORE_2_9 if SIZE_BEFORE_2_9 in os.environ else SIZE] = size
    group = join(this_rank("local"), "cuda")
    values, times = torch.zeros(1024, device=group.device), []
    for _ in range(calls):
        begin_s = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - begin_s)
    torch.cuda.synchronize(group.device)
    dump = dump_function()
    plain = json.loads(dump()) if dump else {}
    dist.destroy_process_group()
    begun = group_states(plain, 1)["0"].begun if plain.get("entries") else None
    return {"call_us": 1e6 * statistics.median(times), "begun": begun, "has_dump": dump is not None}


@touches(
    "hpcddp/worker/watchdog/flight_recorder.py",
    stand_in="the recorder of NCCL is empty, and costs nothing: gloo has its own",
)
def test_the_flight_recorder_has_what_was_begun(tmp_path: Path, figures: Figures) -> None:
    """Its last collective's number is how many there were. What it costs the host: without it, and with it, in turns."""
    calls = CALLS if is_real() else 5
    found = [
        ranks.values(tmp_path / f"{size}-{again}", 1, recorded, calls, size)[0] for again in range(3) for size in ("0", "500")
    ]
    without, with_it = found[::2], found[1::2]
    if is_real() and with_it[0]["has_dump"]:
        assert {each["begun"] for each in with_it} == {calls}
    costs_us = statistics.median(each["call_us"] for each in with_it) - statistics.median(each["call_us"] for each in without)
    figures.add("recorder_us_per_collective", costs_us)
