"""requirements/ has what setup.cfg and pyproject.toml require; `python -m tests.test_locked` prints what else is installed."""

from __future__ import annotations

import configparser
import itertools
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.machine import run

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


EXTRAS = {"demo": ("train", "demo"), "test": ("train", "demo", "test")}


def needed(extras: Iterable[str]) -> list[Requirement]:
    """By hpcddp itself, those extras, and its build."""
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    texts = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in extras)]
    build = re.findall(r'^requires = \["(.*)"\]', (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    return [Requirement(line) for text in (*texts, *build) for line in text.splitlines() if line]


def pythons() -> list[str]:
    """Those that the Makefile makes an environment with."""
    found = re.search(r"^LOCKED := (.*)", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1].split()


@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.parametrize(("python", "machine"), list(itertools.product(pythons(), ("x86_64", "aarch64"))))
def test_it_has_what_is_required(name: str, python: str, machine: str) -> None:
    """In a release that will do. Red after a change of setup.cfg until `make lock`."""
    pins = locked(name, {"python_version": python, "python_full_version": f"{python}.1", "platform_machine": machine})
    for requirement in needed(EXTRAS[name]):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)], prereleases=True), requirement


def test_the_locks_agree() -> None:
    """`make test` installs nothing over what `make demo` has installed."""
    assert locked("demo").items() <= locked("test").items()


def test_another_python_is_refused() -> None:
    command = ("make", "PYTHON=false", "VENV=none", "none/bin/python")
    with pytest.raises(AssertionError, match=r"locks packages for Python .*3\.11, and false is"):
        run(*command, cwd=CHECKOUT)
