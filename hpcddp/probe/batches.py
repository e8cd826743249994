"""Batches without end, from a loader that has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def batches(loader: Any) -> Iterator[Any]:
    """Epoch after epoch, each in another order where the loader's sampler can; an iterator only once."""
    epoch = 0
    while True:
        shuffle = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if epoch and shuffle is not None:  # the first epoch's is the script's own
            shuffle(epoch)
        source = iter(loader)
        several = source is not loader
        got_any = False
        for batch in source:
            got_any = True
            yield batch
        if not several or not got_any:
            return
        epoch += 1
