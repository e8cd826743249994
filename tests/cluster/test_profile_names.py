"""Which profile a name, a file or this machine's host name means."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import current_cluster, load_profile, login_hosts
from hpcddp.cluster.profile_names import FOLDER, own_folder, profile_names
from hpcddp.core.errors import UsageError
from tests.cluster.conftest import own_profile


def test_own_profile_by_name() -> None:
    file = own_profile("mine", "node_types: {fat: {gpus: 8}}\n")
    profile = load_profile("mine")
    assert (profile.name, profile.file, profile.node_types["fat"].gpus) == ("mine", str(file), 8)
    assert load_profile("rcc").file is None


def test_a_name_that_is_also_shipped_is_refused_with_both_files() -> None:
    file = own_profile("rcc", "")
    with pytest.raises(UsageError) as caught:
        load_profile("rcc")
    words = f"`rcc` is also the name of a shipped profile ({FOLDER / 'rcc.yaml'}). Rename this one: its file and its `name`."
    assert str(caught.value) == f"{file}:2:1: {words}"


def test_the_file_and_its_name_agree() -> None:
    file = own_profile("mine", "")
    file.rename(file.with_name("yours.yaml"))
    with pytest.raises(UsageError, match=r"yours\.yaml:2:1: `mine`: .* Write `name: yours`\.$"):
        load_profile("yours")
    words = rf"^no cluster `yuors` in clusters/ or {re.escape(str(own_folder()))}; did you mean `yours`"
    with pytest.raises(UsageError, match=words):
        load_profile("yuors")


def test_advice_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_profile("mine", "node_types: {fat: {gpus: 8}}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"\(`hpcddp clusters show ~/config/hpcddp/clusters/mine\.yaml`\)$"):
        load_profile("mine").node_type("thin")
    monkeypatch.chdir(own_folder())
    with pytest.raises(UsageError, match=r"\(`hpcddp clusters show mine\.yaml`\)$"):
        load_profile("./mine.yaml").node_type("thin")
    with pytest.raises(UsageError, match=r"\(`hpcddp clusters show rcc`\)$"):
        load_profile("rcc").node_type("thin")


HOST = "login-hpc.rcc.mcw.edu"


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """On rcc's login node."""
    monkeypatch.delenv("HPCDDP_CLUSTER", raising=False)
    monkeypatch.setattr(socket, "getfqdn", lambda: HOST)


@pytest.mark.parametrize(
    ("host", "variable", "cluster"),
    [
        (HOST, "", "rcc"),
        ("login02.m100.cineca.it", "", "marconi100"),
        ("m100.cineca.it", "", None),
        ("laptop", "", None),
        (HOST, "./mine.yaml", "./mine.yaml"),
    ],
)
def test_current_cluster(monkeypatch: pytest.MonkeyPatch, host: str, variable: str, cluster: str | None) -> None:
    monkeypatch.setenv("HPCDDP_CLUSTER", variable)
    monkeypatch.setattr(socket, "getfqdn", lambda: host)
    assert current_cluster() == cluster


def test_login_hosts_are_read_without_the_rest_of_a_shipped_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are many, and each command without --cluster looks through them."""
    expected = {name: list(load_profile(name).login_hosts) for name in profile_names()}
    monkeypatch.setattr("hpcddp.cluster.profile_file.read_profile", lambda file: pytest.fail(f"{file} is read whole"))
    assert {name: login_hosts(FOLDER / f"{name}.yaml") for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "login_hosts: [a.org, b.org]\nenv: {}\n",
        "login_hosts:\n# two of them\n- a.org\n\n- b.org\nenv: {}\n",
        "login_hosts: [\n  a.org,\n  b.org]\nenv: {}\n",
        "login_hosts: {value: [a.org, b.org], grade: A, source: wiki}\nsources: {wiki: W}\n",
        "extends: rcc\nlogin_hosts: [a.org, b.org]\n",
        '"login_hosts": [a.org, b.org]\n',
    ],
)
def test_ones_own_profile_is_found_by_host_in_any_style(tmp_path: Path, text: str) -> None:
    assert login_hosts(own_profile("mine", text)) == ["a.org", "b.org"]


@pytest.mark.usefixtures("on_host")
def test_ones_own_profile_goes_before_the_shipped_one() -> None:
    own_profile("mine", "extends: rcc\n")
    assert current_cluster() == "mine"
    own_profile("mine", "extends: rcc\nlogin_hosts: []\n")
    own_profile("other", "").write_bytes("title: Köln".encode("latin-1"))  # is complained of where it is used
    assert current_cluster() == "rcc"


@pytest.mark.usefixtures("on_host")
def test_two_of_ones_own_are_not_guessed_between() -> None:
    files = [own_profile(name, "extends: rcc\n") for name in ("first", "second")]
    with pytest.raises(UsageError) as caught:
        current_cluster()
    words = f"is a login node by `login_hosts` of {files[0]} and {files[1]}: choose one with --cluster or HPCDDP_CLUSTER"
    assert str(caught.value) == f"{HOST} {words}"
