"""What planting a fault needs."""

from __future__ import annotations

import random
from collections.abc import Callable

from .generated import GeneratedTable

Lines = set[int]
Plant = Callable[[random.Random], tuple[GeneratedTable, Lines]]


def seconds(value: float) -> str:
    return f"{value:.3f}"


def lines(indices: list[int]) -> Lines:
    """Of the file: the header is line 1."""
    return {i + 2 for i in indices}


def pick(table: GeneratedTable, but_first: bool = True) -> tuple[int, int]:
    return table.rng.choice(table.layouts()[1 if but_first else 0 :])


def shifted(low: float, high: float) -> Callable[[random.Random, float], float]:
    """A number off by so much, up or down."""
    return lambda rng, value: value * rng.uniform(low, high) ** rng.choice([-1, 1])
