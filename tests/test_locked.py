"""requirements/ has what setup.cfg and pyproject.toml require, on each Python and platform that the Makefile installs it on."""

from __future__ import annotations

import configparser
import itertools
import re
from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fresh_install import run
from tests.locked import CHECKOUT, locked

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
    """By what the locks are for, before anything is made."""
    command = ("make", "PYTHON=false", "VENV=none", "none/bin/python")
    with pytest.raises(AssertionError, match=r"locks packages for Python .*3\.11, and false is"):
        run(*command, cwd=CHECKOUT)
