"""Gates: each holds on what it should and names the first rank and place where it does not."""

from __future__ import annotations

import pytest

from hpcddp.core.attempt_records import GpuTelemetry
from hpcddp.worker import gates
from hpcddp.worker.rank_result import EvaluatedShare, NodeShare


def test_parameters_agree() -> None:
    """At every time checked, over all ranks."""
    same = {"at the start": "aa", "at the end": "bb"}
    assert gates.parameters_agree([same, same, same]).passed is True
    odd = gates.parameters_agree([same, same, {"at the start": "aa", "at the end": "cc"}])
    assert odd.passed is False
    assert odd.evidence == "at the end 1 of 3 ranks differ from rank 0: rank 2 has cc, rank 0 bb"
    missing = gates.parameters_agree([same, {"at the start": "aa"}])
    assert missing.passed is False
    assert missing.evidence == "at the end 1 of 2 ranks differ from rank 0: rank 1 has None, rank 0 bb"


def test_loss_is_finite() -> None:
    """On every rank."""
    assert gates.loss_is_finite([True, True]).passed is True
    assert "rank 1 had" in gates.loss_is_finite([True, False]).evidence
    assert gates.loss_is_finite([True, False]).passed is False


def test_ranks_stepped_equally() -> None:
    """Each as often as planned."""
    assert gates.ranks_stepped_equally([6, 6], 6).passed is True
    odd = gates.ranks_stepped_equally([6, 5], 6)
    assert (odd.passed, odd.evidence) == (False, "rank 1 made 5 of 6 steps")


def test_every_epoch_reshuffled() -> None:
    """No rank began an epoch as the one before."""
    assert gates.every_epoch_reshuffled([None, None], 3).passed is True
    odd = gates.every_epoch_reshuffled([None, 1], 3)
    assert (odd.passed, odd.evidence) == (False, "rank 1 began epoch 1 with the batches of epoch 0")


def share(first: int, end: int, samples: int | None = None, mismatch: int | None = None) -> EvaluatedShare:
    counted = end - first if samples is None else samples
    return EvaluatedShare(samples=counted, correct=0, loss_sum=0.0, first=first, end=end, mismatch=mismatch)


def test_evaluation_is_exact() -> None:
    """Every rank its own share, and the shares every sample once: each rank's own numbers tell, not their sum."""
    found = gates.evaluation_is_exact([share(0, 48), share(48, 97)], 97)
    assert (found.passed, found.evidence) == (True, "97 of 97 samples: 48 to 49 by each of 2 ranks")
    for odd, says in [
        ([share(0, 48, samples=97), share(48, 97, samples=0)], "rank 0 evaluated 97 of its 48 samples; all ranks 97 of 97"),
        ([share(0, 48), share(48, 97, samples=50)], "rank 1 evaluated 50 of its 49 samples; all ranks 98 of 97"),
        ([share(0, 48), share(0, 48)], "rank 1 did not have sample 0 where it was to evaluate it"),
        ([share(0, 48), share(48, 97, mismatch=55)], "rank 1 did not have sample 55 where it was to evaluate it"),
        ([share(0, 48)], "the ranks' shares end at sample 48 of 97"),
    ]:
        found = gates.evaluation_is_exact(odd, 97)
        assert (found.passed, found.evidence) == (False, says)


def test_buffers_agree() -> None:
    """As every rank's next forward sees them."""
    assert gates.buffers_agree(["aa", "aa"]).passed is True
    odd = gates.buffers_agree(["aa", "bb"])
    assert odd.passed is False
    assert odd.evidence == "1 of 2 ranks differ from rank 0 as the next forward begins: rank 1 has bb, rank 0 aa"


def test_no_restart_inside() -> None:
    """The first rank whose rows do not follow each other is named, with the place."""
    assert gates.no_restart_inside([None, None], 4).evidence == "4 timed steps follow each other on each of 2 rank(s)"
    odd = gates.no_restart_inside([None, "step 3 is followed by step 0"], 4)
    assert (odd.passed, odd.evidence) == (False, "rank 1: step 3 is followed by step 0")


def node(cpus: int | None, of: int = 48, host: str = "gn03") -> NodeShare:
    return NodeShare(host=host, cpus=cpus, of=of)


@pytest.mark.parametrize(
    ("nodes", "foreign", "exclusive", "passed", "says"),
    [
        ([node(48), node(48)], None, True, True, "all CPUs of 2 nodes; others' use of the CPUs is unknown"),
        ([node(48), node(8, host="gn04")], None, True, False, "8 of 48 CPUs of gn04, where `layout.exclusive` asks for all"),
        ([node(8)], 0.25, False, True, "8 of 48 CPUs of gn03; others used at most 25.0% of a node's CPU time"),
        ([node(None)], None, True, True, "Slurm does not say how many CPUs of gn03 the job has"),
        ([node(None)], 0.031, None, True, "nothing reserves gn03; others used at most 3.1% of a node's CPU time"),
    ],
)
def test_nodes_are_ours(nodes: list[NodeShare], foreign: float | None, exclusive: bool | None, passed: bool, says: str) -> None:
    """A node asked for alone and shared is a fault; a share that was asked for is told, and how busy the others were."""
    found = gates.nodes_are_ours(nodes, [foreign] * len(nodes), exclusive)
    assert found.passed is passed
    assert found.evidence.startswith(says)


def gpu(throttle: dict[str, float] | None, begin: float = 1380.0, end: float = 1380.0) -> tuple[str, GpuTelemetry]:
    median = (begin + end) / 2
    found = GpuTelemetry(gpu=1, readings=100, throttle=throttle, sm_mhz_begin=begin, sm_mhz_end=end, sm_mhz_median=median)
    return "gn03", found


@pytest.mark.parametrize(
    ("last", "passed", "says"),
    [
        (gpu({}), True, "2 of 2 GPU(s) read, median clocks 1380 to 1380 MHz, power capped in at most 0% of the readings"),
        (
            gpu({"sw_power_cap": 0.9}, end=1300.0),
            True,
            "2 of 2 GPU(s) read, median clocks 1340 to 1380 MHz, power capped in at most 90%",
        ),
        (gpu({"sw_power_cap": 0.9}, end=1200.0), False, "GPU 1 of gn03 fell from 1380 to 1200 MHz at its power cap (90%"),
        (gpu({"gpu_idle": 0.5}, end=1200.0), True, "2 of 2 GPU(s) read"),
        (gpu({"hw_thermal_slowdown": 0.005}), True, "2 of 2 GPU(s) read"),
        (gpu(None), True, "1 of 2 GPU(s) read"),
        (gpu({"hw_thermal_slowdown": 0.02}), False, "GPU 1 of gn03: hw_thermal_slowdown in 2% of the readings"),
        (gpu({"sw_thermal_slowdown": 0.5}), False, "GPU 1 of gn03: sw_thermal_slowdown in 50% of the readings"),
        (gpu({"hw_power_brake_slowdown": 1.0}), False, "GPU 1 of gn03: hw_power_brake_slowdown in 100% of the readings"),
    ],
)
def test_gpu_clocks_held(last: tuple[str, GpuTelemetry], passed: bool, says: str) -> None:
    """Heat, hardware and power supply are faults from 1 % of the readings on; a power cap is none while clocks stay."""
    found = gates.gpu_clocks_held([gpu({}), last])
    assert found.passed is passed
    assert found.evidence.startswith(says)
