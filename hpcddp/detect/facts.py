"""Facts of a detected profile: what Slurm says, what it does not say, what it cannot know."""

from __future__ import annotations

from hpcddp.cluster.profile import Fact
from hpcddp.detect.fields import NO_LIMIT

SLURM, UNKNOWN = "slurm", "unknown"
"""Keys of the profile's `sources`."""


def known(value: object, note: str | None = None) -> Fact:
    """What Slurm says."""
    return Fact(value=value, grade="A", source=SLURM, note=note)


def unknown(note: str, source: str = UNKNOWN) -> Fact:
    """What it does not; the note says how to find it."""
    return Fact(value=None, grade="?", source=source, note=note)


def said(value: object, subject: str, note: str | None = None) -> Fact:
    """A fact, or that Slurm did not say it."""
    return unknown(f"Slurm did not say: {subject}", SLURM) if value is None else known(value, note)


def limited(value: int | None, subject: str, note: str | None = None, none: str = "no limit") -> Fact:
    """A limit, `none` where Slurm says that there is none, or that it did not say it."""
    return known(None, none) if value == NO_LIMIT else said(value, subject, note)
