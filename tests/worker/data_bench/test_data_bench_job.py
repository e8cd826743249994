"""The benchmark of a data set by real ranks: what is measured of it, and what lies in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.data_bench_record import DataBenchRecord
from hpcddp.core.data_bench_request import DataBenchRequest
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record
from hpcddp.data.writing.prepare import prepare_bigmnist
from hpcddp.worker.data_bench import job
from tests.data.digits import noise_digits
from tests.data.files import write_imagenet, write_mnist
from tests.worker import forked, given


def bench(
    study: Path, data: Data, *others: Data, ranks: int = 1, workers: tuple[int, ...] = (0, 1), batches: tuple[int, ...] = (2,)
) -> DataBenchRecord:
    """The record; rank 0 returns it, others nothing."""
    request = DataBenchRequest(loader_workers_per_rank=workers, batch_per_gpu=batches, data=(data, *others), seconds=0.1)
    spec = spec_to_dict(given.job(study, given.point(ranks, data=data, batch_per_gpu=2), data_bench=request))
    plain, *rest = forked.values(study / "output", ranks, in_rank, spec)
    assert rest == [{}] * (ranks - 1)
    assert json.loads(Study(study).data_bench_file("7").read_text()) == plain
    return decode_record(DataBenchRecord, plain)


def in_rank(spec: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    return job.run(spec)


@pytest.mark.dear
def test_pictures_in_a_folder(tmp_path: Path) -> None:
    """With the cache cold and warm, on two ranks: what training loads, what reading and decoding come to apart, none zero."""
    write_imagenet(tmp_path / "in", per_class=12)
    found = bench(tmp_path, Data(name="imagenet", root=str(tmp_path / "in"), decoder="pillow"), ranks=2, workers=(1,))
    assert (found.ranks, found.data.root, found.storage) == (2, str(tmp_path / "in"), None)
    assert found.bytes_per_sample is not None
    files = list((tmp_path / "in" / "train").glob("*/*"))
    assert found.samples == len(files)
    assert min(file.stat().st_size for file in files) <= found.bytes_per_sample <= max(file.stat().st_size for file in files)
    assert [rate.cache for rate in found.rates] == ["cold", "warm"]
    for rate in found.rates:
        assert (rate.decoder or "").startswith("pillow ")
        assert all((rate.samples_per_s, rate.read_samples_per_s, rate.decode_samples_per_s))
        assert rate.samples % 4 == 0


@pytest.mark.dear
def test_rows_of_large_files(tmp_path: Path) -> None:
    """Cold and warm, with what the storage gives in large pieces; nothing is decoded, and one copy in memory has no cold cache.

    A form or set that is not there is a problem, and what is there is measured.
    """
    prepare_bigmnist(
        tmp_path / "big", digits=noise_digits(30, 5), copies=4, variants=("plain",), seed=1, progress=lambda done, total: None
    )
    shards, virtual, other = (
        Data(name="bigmnist", root=str(tmp_path / "big"), copies=copies, variants=("plain",), form=form)  # type: ignore[arg-type]
        for copies, form in ((4, "shards"), (4, "virtual"), (9, "shards"))
    )
    found = bench(tmp_path, virtual, shards, other, workers=(1,))
    assert found.storage is not None
    assert min(found.storage.bytes_per_s, found.storage.again_bytes_per_s) > 0
    assert found.bytes_per_sample == 785
    assert [(rate.form, rate.cache, rate.decoder, rate.read_samples_per_s) for rate in found.rates] == [
        ("virtual", "warm", None, None),
        ("shards", "cold", None, None),
        ("shards", "warm", None, None),
    ]
    assert [found.bytes_per_s(rate) is None for rate in found.rates] == [True, False, False]
    assert "data.copies is 9" in found.problems[0]


@pytest.mark.dear
def test_data_in_memory_have_no_cold_cache(tmp_path: Path) -> None:
    """MNIST is read once, when a run begins; so many loader processes as a rank has CPUs are tried where none are given."""
    write_mnist(tmp_path / "mnist")
    found = bench(tmp_path, Data(name="mnist", root=str(tmp_path / "mnist")), workers=())
    assert (found.bytes_per_sample, {rate.cache for rate in found.rates}) == (None, {"warm"})
    assert tuple(rate.loader_workers_per_rank for rate in found.rates) == job.usual_workers(found.cpus_of_ranks[0])


@pytest.mark.dear
def test_a_batch_that_the_data_do_not_fill_is_a_problem(tmp_path: Path) -> None:
    """The others are measured."""
    write_mnist(tmp_path / "mnist")
    found = bench(tmp_path, Data(name="mnist", root=str(tmp_path / "mnist")), workers=(0, 1), batches=(500, 2))
    assert [(rate.batch_per_gpu, rate.loader_workers_per_rank) for rate in found.rates] == [(2, 0), (2, 1)]
    assert [problem.partition(":")[0] for problem in found.problems] == [
        f"{found.samples} training samples do not fill one global batch of 500 (1 x 500)"
    ]


def test_data_that_one_node_lacks_are_measured_on_none(tmp_path: Path) -> None:
    """Each rank says so: none waits for another, or loads while another does something else."""
    write_mnist(tmp_path / "node0")
    data = Data(name="mnist", root=f"{tmp_path}/$SLURMD_NODENAME")
    request = DataBenchRequest(loader_workers_per_rank=(0,), batch_per_gpu=(2,), data=(data,), seconds=0.1)
    spec = spec_to_dict(given.job(tmp_path, given.point(2, nodes=2, data=data, batch_per_gpu=2), data_bench=request))
    outcomes = forked.ranks(tmp_path / "output", 2, in_rank, spec, nodes=2, timeout_s=30)
    last_lines = [outcome.output.strip().splitlines()[-1] for outcome in outcomes]
    assert len(set(last_lines)) == 1
    assert re.search(r"HpcddpError: rank 1 on \S+: no train-images\S* or \S* in \S*/node1 ", last_lines[0])


@pytest.mark.parametrize(("cpus", "workers"), [(1, (0, 1)), (2, (0, 1, 2)), (12, (0, 1, 2, 4, 8, 12)), (16, (0, 1, 2, 4, 8, 16))])
def test_usual_workers(cpus: int, workers: tuple[int, ...]) -> None:
    assert job.usual_workers(cpus) == workers


def test_ranks_of_a_node_share_its_cpus() -> None:
    """Where each may run on all of them; where each has its own, that many."""
    shared = [job.Peer(host="a", cpus=(0, 1, 2, 3))] * 2
    own = [job.Peer(host="b", cpus=(0, 1, 2)), job.Peer(host="b", cpus=(3,))]
    assert job.cpus_of_ranks([*shared, *own]) == (2, 2, 2, 1)
    assert job.cpus_of_ranks([job.Peer(host="a", cpus=(0,))] * 3) == (1, 1, 1)
