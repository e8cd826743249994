"""What Slurm says of a study's requests before anything is submitted."""

import dataclasses
import time
from pathlib import Path

import pytest

from hpcddp.backends.slurm_test_only import refusal_words
from hpcddp.core.point import Point
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.refused_requests import RequestCheck, check_requests
from hpcddp.submit.submission_plan import SubmissionPlan
from tests.fake_slurm import Say, calls, stand_ins
from tests.given_plan import allocation_plan

LIMIT = (
    "sbatch: error: QOSMaxNodePerJobLimit\nallocation failure: Job violates accounting/QOS policy (job submit limit, user's size \
and/or time limits)"
)


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """An sbatch that takes everything."""
    return stand_ins(tmp_path, monkeypatch, ("sbatch",), "exit 0")


def plan(tmp_path: Path, rate: float | None = None) -> SubmissionPlan:
    """Three node counts and two batches each: six points, three requests."""
    axes = "{layout.nodes: [1, 2, 4], workload.batch_per_gpu: [8, 16]}"
    planned = allocation_plan(tmp_path, axes=axes, options=SubmitOptions())
    slurm = dataclasses.replace(planned.profile.slurm, submissions_per_s=rate)
    return dataclasses.replace(planned, profile=dataclasses.replace(planned.profile, slurm=slurm))


def runs(planned: SubmissionPlan) -> list[tuple[Point, int]]:
    return [(entry.point, run) for run in (1, 2) for entry in planned.points]


def test_each_distinct_request_is_judged_once(say: Say, tmp_path: Path) -> None:
    planned = plan(tmp_path)
    assert check_requests(planned, runs(planned)) == RequestCheck()
    assert len(calls(tmp_path, "sbatch")) == 3
    assert all(call.startswith("sbatch --test-only ") for call in calls(tmp_path, "sbatch"))
    in_one = dataclasses.replace(planned, options=SubmitOptions(one_allocation=True))
    check_requests(in_one, runs(in_one))
    assert len(calls(tmp_path, "sbatch")) == 4


def test_sbatch_is_called_no_faster_than_the_profile_allows(say: Say, tmp_path: Path) -> None:
    planned = plan(tmp_path, rate=5.0)
    begun_s = time.monotonic()
    check_requests(planned, runs(planned))
    assert time.monotonic() - begun_s >= 0.4


def test_a_refusal_names_the_point_the_words_and_the_key_of_the_profile(say: Say, tmp_path: Path) -> None:
    planned = plan(tmp_path)
    say("sbatch", f"grep -q -e --nodes=4 $2 || exit 0\ncat >&2 <<'END'\n{LIMIT}\nEND\nexit 1")
    found = check_requests(planned, runs(planned))
    one, other = (entry.point.label for entry in planned.points if entry.point.layout.nodes == 4)
    words = "Slurm refuses 4 nodes, too many for a job without a QOS (sbatch: QOSMaxNodePerJobLimit)"
    step = "Add max_nodes to the rule without a name of slurm.qos of the profile of rcc."
    assert found.certain == [f"{one}, {other}: {words}. {step}"]
    assert found.uncertain == []


def test_one_sentence_says_what_is_refused_of_all_points(say: Say, tmp_path: Path) -> None:
    planned = plan(tmp_path)
    say("sbatch", "echo 'sbatch: error: ask for a coffee first' >&2; echo 'allocation failure: Unspecified error' >&2; exit 1")
    (text,) = check_requests(planned, runs(planned)).certain
    assert " and 4 more points: Slurm refuses this request (sbatch: ask for a coffee first)." in text


@pytest.mark.parametrize(
    ("words", "is_certain"),
    [
        ("allocation failure: Requested node configuration is not available", False),
        ("sbatch: error: AssocMaxSubmitJobLimit", False),
        ("allocation failure: Invalid feature specification", True),
    ],
)
def test_a_job_that_may_wait_all_the_same_is_not_refused_for_sure(say: Say, tmp_path: Path, words: str, is_certain: bool) -> None:
    planned = plan(tmp_path)
    say("sbatch", f"echo '{words}' >&2; exit 1")
    found = check_requests(planned, runs(planned))
    assert (bool(found.certain), bool(found.uncertain)) == (is_certain, not is_certain)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exec sleep 600", "not checked with Slurm: sbatch did not answer within"),
        ("echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1", "Unable to contact"),
        ("echo 'sbatch: fatal: Could not establish a configuration source' >&2; exit 1", "no configuration"),
        ("echo 'allocation failure: Rate limit exceeded, please retry later' >&2; exit 1", "Rate limit exceeded"),
        ("grep -q -e --nodes=1 $2 && exit 0; exec sleep 600", "2 requests of 3 not checked with Slurm: sbatch did not answer"),
    ],
)
def test_silence_is_a_remark(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    monkeypatch.setattr("hpcddp.submit.refused_requests.PATIENCE_S", 1.5)
    planned = plan(tmp_path)
    say("sbatch", script)
    begun_s = time.monotonic()
    found = check_requests(planned, runs(planned))
    assert found.refused == {}
    assert says.replace("no configuration", "Could not establish") in str(found.remark)
    assert time.monotonic() - begun_s < 5


def test_slurm_that_is_not_installed_leaves_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = check_requests(planned, runs(planned))
    words = "This machine has no `sbatch`. Slurm's commands are on a cluster's login nodes."
    assert found == RequestCheck(remark=f"not checked with Slurm: {words}")


def test_sbatch_is_quoted_without_its_name() -> None:
    assert refusal_words(LIMIT) == "QOSMaxNodePerJobLimit"
    assert refusal_words("allocation failure: Unspecified error") == "Unspecified error"
    assert refusal_words("sbatch: error: a\nsbatch: error: Batch job submission failed: Unspecified error") == "a"
