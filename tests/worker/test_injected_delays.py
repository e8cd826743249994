"""A delay of a known length, put where it belongs, is found there and nowhere else: real ranks, the records they leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hpcddp.analysis.records.buckets import ExchangeWindows, read_buckets
from hpcddp.analysis.records.json_files import read_training_end
from hpcddp.analysis.records.ranks import COLUMNS, rank_results, step_tables
from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.runs.communication import Exchange, exchange_times
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Point
from hpcddp.worker.main import run
from hpcddp.worker.training.models import build_model
from tests.net.link import BURST_BYTES, PAYLOAD_SHARE, Link
from tests.worker import forked, given

pytestmark = pytest.mark.timed

JOB = "7"
DELAY_NS = 200_000_000
STEPS = 24
TOLERANCE = 0.1
RATES_MBIT = (100, 25)


@dataclass(frozen=True)
class Measured:
    """What the steady steps of a run show, in ns, by rank and step."""

    tables: list[Columns]
    exchange: Exchange
    step_bytes: int

    def part(self, name: str) -> Any:
        return np.array([table[f"{name}_ns"] for table in self.tables])


def measure(folder: Path, what: Point, launch: Callable[..., Any] = forked.values) -> Measured:
    """Runs the point with the communication hook and reads its records."""
    spec = given.job(folder, what)
    launch(folder / "output", what.ranks, run, spec_to_dict(spec))
    attempt, warnings = spec.attempt_dir(JOB, 0), list[str]()
    ranks = rank_results(read_training_end(attempt), what.ranks)
    buckets = read_buckets(attempt, ranks, ExchangeWindows(ranks), warnings)
    assert buckets is not None
    assert warnings == []
    tables = step_tables(attempt, ranks, COLUMNS, warnings)
    steady = [{name: values[columns["flags"] == 0] for name, values in columns.items()} for columns in tables]
    return Measured(steady, exchange_times(buckets), int(buckets.size_bytes[buckets.step == 0].sum()))


def hooked(ranks: int, steps: int = STEPS, **changes: Any) -> Point:
    return given.point(ranks, warmup=4, steps=steps, measure={"comm": "on"}, **changes)


def rise(values: Any, slow: Any, delay_ns: float = DELAY_NS) -> list[float]:
    """How much longer a part lasts in slow steps than in the others, as a share of the delay, by rank; medians."""
    return list((np.median(values[:, slow], axis=1) - np.median(values[:, ~slow], axis=1)) / delay_ns)


def near(*shares: float) -> Any:
    return pytest.approx(list(shares), abs=TOLERANCE)


class SlowEverySecondTime(nn.Module):
    """Sleeps before every second forward of rank 1, so that slow and other steps see the same machine."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.calls = model, 0

    def forward(self, images: torch.Tensor) -> Any:
        self.calls += 1
        if self.calls % 2 and os.environ["SUBMITIT_LOCAL_GLOBALID"] == "1":
            time.sleep(DELAY_NS / 1e9)
        return self.model(images)


def slow_model(classes: int) -> nn.Module:
    return SlowEverySecondTime(build_model("mnist-cnn", classes=classes, height=28, seed=1))


def test_a_slow_rank_is_slow_itself_and_the_others_wait_for_it(tmp_path: Path) -> None:
    found = measure(tmp_path, hooked(3, model="tests.worker.test_injected_delays:slow_model"))
    slow = found.part("forward")[1] > DELAY_NS
    assert (slow[::2] != slow[1::2]).all()
    assert rise(found.part("forward"), slow) == near(0, 1, 0)
    assert rise(found.exchange.peer_wait_ns, slow) == near(1, 0, 1)
    assert rise(found.exchange.transfer_ns, slow) == near(0, 0, 0)
    assert (found.exchange.slack_ns[1][np.repeat(slow, 2)] == 0).all()


class SlowData:
    """A data set whose samples of every second batch of four take their time, on every rank."""

    classes, shape = 10, (1, 28, 28)

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        if (self.calls - 1) // 4 % 2:
            time.sleep(DELAY_NS / 4 / 1e9)
        return torch.full(self.shape, index % 256, dtype=torch.uint8), index % self.classes


def slow_data(root: str | None, split: str) -> SlowData:
    return SlowData()


def test_slow_data_are_waited_for(tmp_path: Path) -> None:
    found = measure(tmp_path, hooked(2, data=Data(name="tests.worker.test_injected_delays:slow_data")))
    slow = found.part("data_wait")[0] > DELAY_NS
    assert (slow[::2] != slow[1::2]).all()
    assert rise(found.part("data_wait"), slow) == near(1, 1)
    assert rise(found.exchange.peer_wait_ns, slow) == near(0, 0)
    assert rise(found.exchange.transfer_ns, slow) == near(0, 0)


class WireOfTwoRates(nn.Module):
    """Before each forward of rank 0 the wire gets the other of two rates, so that both meet the same machine."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.calls = model, 0

    def forward(self, images: torch.Tensor) -> Any:
        self.calls += 1
        if os.environ["SUBMITIT_LOCAL_GLOBALID"] == "0":
            first, second = os.environ["NAMESPACES"].split()
            Link((first, second)).set_rate(RATES_MBIT[self.calls % 2])
        return self.model(images)


def model_on_a_wire(classes: int) -> nn.Module:
    return WireOfTwoRates(build_model("mnist-cnn", classes=classes, height=28, seed=1))


def test_a_slower_wire_is_transfer(link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESPACES", " ".join(link.namespaces))
    what = hooked(2, steps=16, model="tests.worker.test_injected_delays:model_on_a_wire")
    found = measure(tmp_path, what, lambda folder, _, *call: link.values(folder, *call))
    transfer_ns = found.exchange.transfer_ns
    slow = transfer_ns[0] > transfer_ns[0].mean()
    assert (slow[::2] != slow[1::2]).all()
    fast_s, slow_s = (8e-6 / PAYLOAD_SHARE / mbit for mbit in RATES_MBIT)
    expected_ns = (found.step_bytes * 2 * (2 - 1) / 2 - BURST_BYTES) * (slow_s - fast_s) * 1e9
    assert rise(transfer_ns, slow, expected_ns) == near(1, 1)
    assert rise(found.exchange.peer_wait_ns, slow, expected_ns) == near(0, 0)
