"""Gates: each holds on what it should and names the first rank and place where it does not."""

from __future__ import annotations

from hpcddp.worker import gates


def test_parameters_agree() -> None:
    """At every time checked, over all ranks."""
    same = {"at the start": "aa", "at the end": "bb"}
    assert gates.parameters_agree([same, same, same])["passed"] is True
    odd = gates.parameters_agree([same, same, {"at the start": "aa", "at the end": "cc"}])
    assert odd["passed"] is False
    assert odd["evidence"] == "at the end 1 of 3 ranks differ from rank 0: rank 2 has cc, rank 0 bb"


def test_loss_is_finite() -> None:
    """On every rank."""
    assert gates.loss_is_finite([True, True])["passed"] is True
    assert "rank 1 had" in gates.loss_is_finite([True, False])["evidence"]
    assert gates.loss_is_finite([True, False])["passed"] is False


def test_ranks_stepped_equally() -> None:
    """Each as often as planned."""
    assert gates.ranks_stepped_equally([6, 6], 6)["passed"] is True
    odd = gates.ranks_stepped_equally([6, 5], 6)
    assert (odd["passed"], odd["evidence"]) == (False, "rank 1 made 5 of 6 steps")


def test_every_epoch_reshuffled() -> None:
    """No rank began an epoch as the one before."""
    assert gates.every_epoch_reshuffled([None, None], 3)["passed"] is True
    odd = gates.every_epoch_reshuffled([None, 1], 3)
    assert (odd["passed"], odd["evidence"]) == (False, "rank 1 began epoch 1 with the batches of epoch 0")


def test_evaluation_counts_every_sample() -> None:
    """A sampler that pads counts some twice."""
    assert gates.evaluation_counts_every_sample(97, 97)["passed"] is True
    odd = gates.evaluation_counts_every_sample(98, 97)
    assert (odd["passed"], odd["evidence"]) == (False, "98 of 97 samples")
