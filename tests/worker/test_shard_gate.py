"""The gate of sharded parameters: copies of a shard agree, and every shard is updated."""

from __future__ import annotations

import pytest
import torch

from hpcddp.worker.checksums import checksum
from hpcddp.worker.shard_gate import shards_agree


def sums(*ends: str, start: str = "abcd") -> list[dict[str, str]]:
    """By rank: its checksum at the start, one letter of `start`, and at the end."""
    return [{"at the start": start[rank % len(start)], "at the end": end} for rank, end in enumerate(ends)]


def test_shards_differ_by_rank() -> None:
    """Without copies nothing is compared over ranks; all were updated."""
    found = shards_agree(sums("e", "f", "g", "h"), 4, trains=True)
    assert found.passed
    assert found.evidence.startswith("4 rank(s) hold 4 shard(s), every shard was updated; SHA-256 of rank 0 at the start a")


def test_copies_agree() -> None:
    """Ranks 0 and 2, 1 and 3 hold the same."""
    found = shards_agree(sums("e", "f", "e", "f", start="ab"), 2, trains=True)
    assert found.passed
    assert "4 rank(s) hold 2 shard(s), 2 copies of each agree" in found.evidence


def test_a_copy_that_differs() -> None:
    """The rank is named with that whose shard it should have."""
    found = shards_agree(sums("e", "f", "e", "x", start="ab"), 2, trains=True)
    assert not found.passed
    assert found.evidence == ("at the end 1 of 4 ranks differ from the first copy of their shard: rank 3 has x, rank 1 f")


@pytest.mark.parametrize(
    ("ends", "words"),
    [("efgd", "1 of 4 shards are what they were at the start, so that of rank 3 (d)"), ("abcd", "no shard was updated: all")],
)
def test_a_shard_that_is_not_updated(ends: str, words: str) -> None:
    """One or all; where nothing was to be trained that is as it should be."""
    found = shards_agree(sums(*ends), 4, trains=True)
    assert not found.passed
    assert words in found.evidence
    assert shards_agree(sums(*ends), 4, trains=False).passed


def test_a_rank_without_a_row() -> None:
    """Of two rows the third rank has none, which no step can change."""
    ranks = [*sums("e", "f"), dict.fromkeys(("at the start", "at the end"), checksum([torch.empty(0, 4)]))]
    assert shards_agree(ranks, 3, trains=True).passed
