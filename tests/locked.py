"""What requirements/ locks for a Python, and which of it is installed in other releases: `python -m tests.locked`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

CHECKOUT = Path(__file__).parent.parent
UNLOCKED = {canonicalize_name(name) for name in ("hpcddp", "pip")}


def locked(name: str, environment: Mapping[str, str] | None = None) -> dict[NormalizedName, str]:
    """Package -> release in requirements/NAME.txt, of what `environment` (this Python and machine) needs."""
    lines = (CHECKOUT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line.removesuffix("\\")) for line in lines if line[:1] not in ("", "#", " ")]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(dict(environment or {}))
    }


def main() -> None:
    """A table of the packages that differ."""
    lock = locked("test")
    here = {canonicalize_name(found.name): found.version for found in distributions()}
    differ = [name for name in sorted({*lock, *here} - UNLOCKED) if lock.get(name) != here.get(name)]
    print(f"== {len(differ)} of {len(lock)} packages differ from requirements/test.txt; `make lock` renews it")
    print(f"{'package':40} {'locked':20} installed")
    for name in differ:
        print(f"{name:40} {lock.get(name, 'not locked'):20} {here.get(name, 'not installed')}")


if __name__ == "__main__":
    main()
