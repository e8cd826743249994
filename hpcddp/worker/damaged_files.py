"""Damaged pictures of an attempt, as all its ranks came upon them."""

from __future__ import annotations

from collections.abc import Mapping

from hpcddp.core.damaged_record import DamagedFiles
from hpcddp.data import Source
from hpcddp.data.pictures.imagenet import EvalImages, damaged_of_all
from hpcddp.worker.rendezvous import ProcessGroup

NAMED = 5
"""Pictures that end.json names, with the reason."""


def damaged_files(group: ProcessGroup, sources: Mapping[str, tuple[Source | None, int]]) -> dict[str, DamagedFiles]:
    """By split, on rank 0; nothing elsewhere. All ranks call it. `sources`: with how many samples the ranks read in all."""
    found = {}
    for split, (source, read) in sources.items():
        if isinstance(source, EvalImages):
            indices = damaged_of_all(group.gather(f"damaged {split}", source.damaged.packed()))
            if indices:
                first = tuple(f"{printable(source.name(index))} ({source.why_damaged(index)})" for index in indices[:NAMED])
                pictures = max(min(read, len(source)), len(indices))  # batches are read ahead of the last step
                found[split] = DamagedFiles(pictures=len(indices), read=pictures, first=first)
    return found


def printable(name: str) -> str:
    r"""The name with what is no character of a line as `\n` and `\udcff`."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in name)
