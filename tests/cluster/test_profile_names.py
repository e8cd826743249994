"""Which profile a name, a file or this machine's host name means."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from hpcddp.cluster.current_cluster import current_cluster, login_hosts
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import FOLDER, own_folder, profile_names
from hpcddp.core.errors import UsageError
from tests.cluster.conftest import own_profile


def test_own_profile_by_name() -> None:
    file = own_profile("mine", "node_types: {fat: {gpus: 8}}\n")
    profile = load_profile("mine")
    assert (profile.name, profile.file, profile.node_types["fat"].gpus) == ("mine", str(file), 8)


def test_a_shipped_profile_has_no_file() -> None:
    assert load_profile("rcc").file is None


def test_a_name_that_is_also_shipped_is_refused_with_both_files() -> None:
    file = own_profile("rcc", "")
    with pytest.raises(UsageError) as caught:
        load_profile("rcc")
    assert str(caught.value) == (
        f"{file}:2:1: `rcc` is also a profile that comes with hpcddp ({FOLDER / 'rcc.yaml'}): rename this one, file and `name`"
    )


def test_the_file_and_its_name_agree() -> None:
    file = own_profile("mine", "")
    file.rename(file.with_name("yours.yaml"))
    with pytest.raises(UsageError, match=r"yours\.yaml:2:1: `mine`: .* write `name: yours`$"):
        load_profile("yours")


def test_an_unknown_name_is_compared_with_ones_own() -> None:
    own_profile("bigcluster", "")
    with pytest.raises(
        UsageError, match=rf"^no cluster `bigclutser` in clusters/ or {re.escape(str(own_folder()))}; did you mean `big"
    ):
        load_profile("bigclutser")


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
    ("host", "cluster"),
    [("login-hpc.rcc.mcw.edu", "rcc"), ("login02.m100.cineca.it", "marconi100"), ("m100.cineca.it", None), ("laptop", None)],
)
def test_current_cluster_by_host(monkeypatch: pytest.MonkeyPatch, host: str, cluster: str | None) -> None:
    monkeypatch.delenv("HPCDDP_CLUSTER", raising=False)
    monkeypatch.setattr(socket, "getfqdn", lambda: host)
    assert current_cluster() == cluster


def test_current_cluster_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "login-hpc.rcc.mcw.edu")
    monkeypatch.setenv("HPCDDP_CLUSTER", "./mine.yaml")
    assert current_cluster() == "./mine.yaml"


@pytest.mark.parametrize("name", profile_names())
def test_login_hosts_are_those_of_the_whole_profile(name: str) -> None:
    assert login_hosts(FOLDER / f"{name}.yaml") == list(load_profile(name).login_hosts)


def test_no_shipped_profile_is_read_whole_for_its_login_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are many, and each command without --cluster looks through them."""
    monkeypatch.setattr("hpcddp.cluster.current_cluster.read_profile", lambda file: pytest.fail(f"{file} is read whole"))
    for name in profile_names():
        login_hosts(FOLDER / f"{name}.yaml")


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
    file = own_profile("mine", text)
    assert login_hosts(file) == ["a.org", "b.org"]


@pytest.mark.usefixtures("on_host")
def test_ones_own_profile_goes_before_the_shipped_one() -> None:
    own_profile("mine", "extends: rcc\n")
    assert current_cluster() == "mine"
    own_profile("mine", "extends: rcc\nlogin_hosts: []\n")
    assert current_cluster() == "rcc"


@pytest.mark.usefixtures("on_host")
def test_a_profile_in_another_encoding_stops_no_command() -> None:
    own_profile("mine", "").write_bytes("title: Köln".encode("latin-1"))
    assert current_cluster() == "rcc"


@pytest.mark.usefixtures("on_host")
def test_two_of_ones_own_are_not_guessed_between() -> None:
    files = [own_profile(name, "extends: rcc\n") for name in ("first", "second")]
    with pytest.raises(UsageError) as caught:
        current_cluster()
    assert str(caught.value) == (
        f"{HOST} is a login node by `login_hosts` of {files[0]} and {files[1]}: give --cluster, or set HPCDDP_CLUSTER"
    )
