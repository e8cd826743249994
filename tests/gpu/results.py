"""What a test found on a GPU, as a line of JSON each: figures with their bounds, machine, versions, date."""

from __future__ import annotations

import datetime
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.device import is_real, machine_facts

FILE_VARIABLE = "HPCDDP_GPU_RESULTS"
"""The file that lines are appended to; not set: none are."""


@dataclass
class Figures:
    """Of one test. A figure outside its bounds fails the test on a GPU; what a stand-in gives need only be a number."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> None:
        """The unit is in the name."""
        limits = {word: limit for word, limit in (("least", least), ("most", most)) if math.isfinite(limit)}
        assert math.isfinite(value), f"{name} is {value}"
        self.values[name] = {"value": value, **limits}
        assert not is_real() or least <= value <= most, f"{name} is {value:.6g}, and should be {_words(limits)}"


def _words(limits: dict[str, float]) -> str:
    return " and ".join(f"at {word} {limit:g}" for word, limit in limits.items())


def append_result(line: dict[str, Any]) -> None:
    """At once, so that a machine that is taken away leaves what it has found."""
    if FILE_VARIABLE in os.environ:
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "date": date, **machine_facts()}, sort_keys=True) + "\n")


def read_results(file: Path) -> list[dict[str, Any]]:
    """The lines of real GPUs; none of a file that is not there."""
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
    return [line for line in lines if not line.get("stand_in")]
