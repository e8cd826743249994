from __future__ import annotations

import torch

from hpcddp.data.batches.batch_memory import MOST_BUFFERS, BatchMemory


def test_memory_is_used_again_when_its_batch_is_gone() -> None:
    """The next batch lies where one lay that nothing refers to any more."""
    memory = BatchMemory((1, 28, 28))
    images, labels = memory.room(4)
    assert (images.shape, labels.shape, images.dtype, labels.dtype) == ((4, 1, 28, 28), (4,), torch.uint8, torch.int64)
    place = images.data_ptr()
    del images, labels
    assert memory.room(4)[0].data_ptr() == place


def test_memory_is_left_to_whoever_still_uses_a_part_of_it() -> None:
    """A view of some images, or the labels alone, hold all of it."""
    memory = BatchMemory((1, 28, 28))
    part, held = memory.room(4)[0][2:3, 0], memory.room(4)[1]
    part.fill_(1)
    held.fill_(2)
    for _ in range(3):
        for each in memory.room(4):
            each.fill_(9)
    assert bool((part == 1).all())
    assert held.tolist() == [2] * 4


def test_a_reader_may_hold_any_number_of_batches() -> None:
    """Each has memory of its own, and so has one of another size."""
    memory = BatchMemory((1, 2, 2))
    held = [memory.room(3)[1].fill_(number) for number in range(2 * MOST_BUFFERS)]
    memory.room(5)[1].fill_(-1)
    assert [int(labels[0]) for labels in held] == list(range(2 * MOST_BUFFERS))
