"""What end.json says of damaged pictures, and its words. For Python 3.10, without libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.core.schema import Count
from hpcddp.core.text import count


@dataclass(frozen=True, kw_only=True)
class DamagedFiles:
    """Pictures of a split that could not be decoded, each once; others were taken in their places."""

    pictures: Count
    read: Count
    """How many different pictures the attempt read, damaged ones included."""
    first: tuple[str, ...] = ()
    """`CLASS/FILE (why)`, in the order of names."""


def replaced_words(damaged: Mapping[str, DamagedFiles]) -> str | None:
    """`3 damaged train pictures replaced`; None where there are none."""
    found = [f"{count(each.pictures, f'damaged {split} picture')}" for split, each in sorted(damaged.items()) if each.pictures]
    return f"{', '.join(found)} replaced" if found else None
