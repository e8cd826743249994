"""Profiles by name: hpcddp's, and the user's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import FOLDER, own_folder
from hpcddp.core.errors import UsageError
from tests.cluster.conftest import own_profile


def test_own_profile_by_name() -> None:
    """A file in the settings folder is found by its name, and known as that file."""
    file = own_profile("mine", "node_types: {fat: {gpus: 8}}\n")
    profile = load_profile("mine")
    assert (profile.name, profile.file, profile.node_types["fat"].gpus) == ("mine", str(file), 8)


def test_a_shipped_profile_has_no_file() -> None:
    """It is known by its name wherever hpcddp is."""
    assert load_profile("rcc").file is None


def test_a_name_that_is_also_shipped_is_refused_with_both_files() -> None:
    """Neither the user's rcc nor hpcddp's is guessed to be meant."""
    file = own_profile("rcc", "")
    with pytest.raises(UsageError) as caught:
        load_profile("rcc")
    assert str(caught.value) == (
        f"{file}:2:1: `rcc` is also a profile that comes with hpcddp ({FOLDER / 'rcc.yaml'}): rename this one, file and `name`"
    )


def test_the_file_and_its_name_agree() -> None:
    """What is found by one name does not call itself another."""
    file = own_profile("mine", "")
    file.rename(file.with_name("yours.yaml"))
    with pytest.raises(UsageError, match=r"yours\.yaml:2:1: `mine`: .* write `name: yours`$"):
        load_profile("yours")


def test_an_unknown_name_is_compared_with_ones_own() -> None:
    """The nearest of both folders is named, and where was searched."""
    own_profile("bigcluster", "")
    with pytest.raises(
        UsageError, match=rf"^no cluster `bigclutser` in clusters/ or {re.escape(str(own_folder()))}; did you mean `big"
    ):
        load_profile("bigclutser")


def test_advice_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`clusters show` knows what a refusal tells to show: the file as it was given, `~` for the home folder."""
    own_profile("mine", "node_types: {fat: {gpus: 8}}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"\(`hpcddp clusters show ~/config/hpcddp/clusters/mine\.yaml`\)$"):
        load_profile("mine").node_type("thin")
    monkeypatch.chdir(own_folder())
    with pytest.raises(UsageError, match=r"\(`hpcddp clusters show mine\.yaml`\)$"):
        load_profile("./mine.yaml").node_type("thin")
    with pytest.raises(UsageError, match=r"\(`hpcddp clusters show rcc`\)$"):
        load_profile("rcc").node_type("thin")
