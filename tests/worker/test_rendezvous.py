"""How ranks meet, and what is said when they do not."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.worker import forked


def wait_alone(rank: int) -> None:
    os.environ |= {"SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_GLOBALID": str(rank)}
    join(this_rank("local"), "cpu", timedelta(seconds=1))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_in_vain(tmp_path: Path, rank: int) -> None:
    """Who waited, for whom and where: rank 0 for the others, the others for rank 0."""
    (outcome,) = forked.ranks(tmp_path, 1, wait_alone, rank)
    assert outcome.code == 1
    assert f"HpcddpError: rank {rank} of 2 on node0 could not meet the others at MASTER_ADDR 127.0.0.1" in outcome.output
