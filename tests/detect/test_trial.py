"""What `sbatch --test-only` takes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpcddp.detect.trial import Names, Trial, TrialVerdict, try_requests
from tests.backends.fake_slurm import Say, stand_ins

TRIAL = Trial(partition="gpu", constraint=None, gres_type="a100", gpus=4)
NAMES = Names(accounts=("bio", "proj"), qos=(None, "dear", "usual"))


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """An sbatch that takes everything."""
    return stand_ins(tmp_path, monkeypatch, ["sbatch"], "exit 0")


def refusing(*refused: str) -> str:
    """An sbatch that refuses what fits one of these patterns of the shell, with the words behind it."""
    cases = "\n".join(
        f"{pattern}) echo '{words}' >&2; exit 1;;" for pattern, _, words in (text.partition(": ") for text in refused)
    )
    return f'case "$* " in\n{cases}\n*) exit 0;; esac'


def verdict(seconds: float = 20.0) -> TrialVerdict:
    return try_requests(TRIAL, ("gres", "gpus-per-node", "none"), NAMES, time.monotonic() + seconds)


@pytest.mark.parametrize(
    ("refused", "option"),
    [
        ((), "free"),
        (("*--mem=*: not --mem here",), "forbidden"),
        (("*--mem=0M*: not all the memory",), "nonzero"),
        (("*--mem=1*: 1", "*--mem=0*: 0"), "forbidden"),
    ],
)
def test_memory(say: Say, refused: tuple[str, ...], option: str) -> None:
    """Whether --mem is taken, and whether as 0."""
    say("sbatch", refusing(*refused))
    assert verdict().memory_option == option


def test_memory_that_must_be_given(say: Say) -> None:
    """Nothing is taken without --mem: it is tried with."""
    say("sbatch", 'case "$*" in *--mem=1000M*) exit 0;; *) echo "--mem must be given" >&2; exit 1;; esac')
    found = verdict()
    assert (found.gpu_request, found.memory_option) == ("gres", "required")


def test_the_first_way_that_is_taken(say: Say) -> None:
    """With the accounts that it is taken with; one must be named where a job without any is refused."""
    say(
        "sbatch",
        """case "$*" in
*--gres*) echo 'no GRES here' >&2; exit 1;;
*--account=proj*) exit 0;;
*) echo 'Invalid account' >&2; exit 1;; esac""",
    )
    found = verdict()
    assert (found.gpu_request, found.accounts, found.account_required) == ("gpus-per-node", ("proj",), True)


def test_a_qos_that_must_be_named(say: Say) -> None:
    """The first in order that is taken, where the refusal is about that."""
    say("sbatch", 'case "$*" in *--qos=usual*) exit 0;; *) echo "Invalid qos specification" >&2; exit 1;; esac')
    assert verdict().qos == "usual"
    say("sbatch", "echo 'Requested node configuration is not available' >&2; exit 1")
    found = verdict()
    assert (found.gpu_request, found.why) == (None, "Requested node configuration is not available")


def test_no_answer_is_no_refusal(say: Say) -> None:
    """A controller that is silent has refused nothing, so that nothing is known."""
    say("sbatch", 'case "$*" in *--gres*) echo "Unable to contact slurm controller" >&2; exit 1;; *) exit 0;; esac')
    assert verdict().gpu_request is None
    say("sbatch", "exec sleep 60")
    start_s = time.monotonic()
    assert "did not answer" in str(verdict(0.3).why)
    assert time.monotonic() - start_s < 5
