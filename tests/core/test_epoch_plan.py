"""Which steps make up which epoch: against a list of all steps."""

from __future__ import annotations

import pytest

from hpcddp.core.epoch_plan import EpochPlan


@pytest.mark.parametrize(
    ("samples", "batch", "grows_at", "factor"), [(330, 16, (), 1), (330, 16, (2,), 2), (100, 3, (1, 2, 5), 3)]
)
def test_a_plan_is_the_list_of_its_steps(samples: int, batch: int, grows_at: tuple[int, ...], factor: int) -> None:
    """Of seven epochs: epoch, place within it and batch of each step, samples before it, and when the batch is another."""
    plan, listed = EpochPlan(samples, batch, grows_at, factor), list[tuple[int, int, int]]()
    for epoch in range(7):
        batch *= factor if epoch in grows_at else 1
        assert (plan.batch_of(epoch), plan.steps_of(epoch), plan.first_step(epoch)) == (batch, samples // batch, len(listed))
        listed += [(epoch, within, batch) for within in range(samples // batch)]
    batches = [batch for *_, batch in listed]
    for step, (epoch, within, batch) in enumerate(listed):
        assert (*plan.epoch_at(step), plan.batch_at(step)) == (epoch, within, batch)
        assert plan.samples_before(step) == sum(batches[:step])
        assert plan.grows_after(step) == next((later for later in range(step, len(listed)) if batches[later] > batch), None)
    assert plan.largest_batch == batches[-1]
