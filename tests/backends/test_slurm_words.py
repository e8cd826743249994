"""Slurm's words, told in ours: why a job waits, and how it ended."""

import pytest

from hpcddp.backends.slurm_words import slurm_ended_words, waiting_words


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "the nodes it needs are busy (Resources)"),
        ("PartitionDown,x", "its partition is down (PartitionDown,x)"),
        ("ReqNodeNotAvail, UnavailableNodes:gn[01-02]", "nodes it needs are down, drained or reserved"),
        ("JobArrayTaskLimit", "as many runs of its array are at work as were allowed at a time (JobArrayTaskLimit)"),
        ("None", "just submitted"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_reasons_are_told_in_words(reason: str, words: str) -> None:
    """A known reason is a sentence with Slurm's word behind it, an unknown one is shown as it is."""
    assert waiting_words(reason) in (words, f"{words} ({reason})")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSMaxGRESPerUser", "its QOS allows a user no more GPUs just now"),
        ("QOSMaxJobsPerUserLimit", "its QOS allows a user no more jobs at a time just now"),
        ("QOSMaxNodePerJobLimit", "it asks for more nodes than its QOS allows a job: it will not start"),
        ("QOSMaxWallDurationPerJobLimit", "it asks for more time than its QOS allows a job: it will not start"),
        ("QOSGrpNodeLimit", "its QOS allows no more nodes just now"),
        ("AssocGrpCpuLimit", "its account allows no more processors just now"),
        ("AssocGrpCPURunMinutesLimit", "its account allows no more processors just now"),
        ("AssocGrpCPUMinutesLimit", "the budget of its account is used up"),
        ("AssocGrpBillingMinutes", "the budget of its account is used up"),
        ("AssocMaxSubmitJobLimit", "its account allows no more jobs in the queue just now"),
    ],
)
def test_limits_are_put_together_from_their_parts(reason: str, words: str) -> None:
    """Whose limit it is, of what, and whether the job can start some day."""
    assert waiting_words(reason) == f"{words} ({reason})"


@pytest.mark.parametrize(
    ("state_word", "code", "words"),
    [
        ("FAILED", "15:0", "exit code 15 (FAILED)"),
        ("FAILED", "0:9", "killed by signal 9 (FAILED)"),
        ("FAILED", "0:53", "its node cannot write the log of its job script (FAILED, 0:53)"),
        ("OUT_OF_MEMORY", "0:125", "it used more memory than Slurm gave it (OUT_OF_MEMORY)"),
        ("TIMEOUT", "0:0", "its time limit was over (TIMEOUT)"),
        ("NODE_FAIL", "", "its node failed (NODE_FAIL)"),
        ("REVOKED", "0:0", "REVOKED"),
    ],
)
def test_ends_are_told_in_words(state_word: str, code: str, words: str) -> None:
    """How a job ended: in words, Slurm's own behind."""
    assert slurm_ended_words(state_word, code) == words
