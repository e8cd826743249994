"""`hpcddp bench data` on a real Slurm, where a folder is read at a given rate: the storage is named, and runs load as fast."""

from __future__ import annotations

import csv
import json

import pytest

from hpcddp.core.data_bench_judgement import loader_limit
from hpcddp.core.data_bench_record import DataBenchRecord
from hpcddp.core.schema import decode_record
from tests import throttled
from tests.twin.twin import Twin
from tests.twin.userland import User

pytestmark = pytest.mark.soak

BYTES_PER_S = 5e5

SWEEP = """
schema: 1
cluster: rcc
device: cpu
workload: {model: resnet18, data: {name: imagenet, root: tars}, batch_per_gpu: 2, loader_workers_per_rank: 1}
layout: {gpus_per_node: 2, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {one: {measure.input: [io]}}
baselines: false
measure: {warmup_steps: 3, steps: 60}
account: proj
slurm: {walltime_min: 5, mem_mb: 3000}
"""


@pytest.fixture(scope="module")
def finished(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """The benchmark on two ranks, then a run of the same point."""
    home = tmp_path_factory.mktemp("user")
    throttled.write_tars(home, 300)
    user = User(rcc_twin, home, variables=throttled.variables(home / "tars", BYTES_PER_S))
    (home / "small.yaml").write_text(SWEEP)
    said = user.hpcddp("bench", "data", "small.yaml", "--workers", 1, "--seconds", 1.5, "--wait", "-y").stdout
    assert "1 job on rcc: 1 node x 2 ranks load imagenet" in said
    assert "2 ranks with" in said
    user.hpcddp("submit", "small.yaml", "--wait", "-y")
    return user


def record(user: User) -> DataBenchRecord:
    (file,) = user.home.glob("small/bench-data/*/bench-data.json")
    return decode_record(DataBenchRecord, json.loads(file.read_text()))


def test_the_storage_is_named_and_not_the_decoder(finished: User) -> None:
    """Cold and warm, as nothing holds what was read; its rate in large pieces is that of the folder."""
    found = record(finished)
    assert [loader_limit(found, rate) for rate in found.rates] == ["storage", "storage"]
    assert found.storage is not None
    assert found.storage.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.05)
    assert "files were read again no faster" in found.problems[0]


def test_runs_load_as_fast(finished: User) -> None:
    """The same point with `measure.input: io`, within 5 %."""
    finished.hpcddp("analyze", "small")
    (row,) = csv.DictReader((finished.home / "small" / "report" / "scaling.csv").read_text().splitlines())
    cold, warm = (rate.samples_per_s for rate in record(finished).rates)
    assert cold == pytest.approx(float(row["samples_per_s"]), rel=0.05)
    assert warm == pytest.approx(float(row["samples_per_s"]), rel=0.05)
