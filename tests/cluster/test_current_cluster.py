"""Which cluster this machine is a login node of."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hpcddp.cluster.current_cluster import current_cluster, login_hosts
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import FOLDER, profile_names
from hpcddp.core.errors import UsageError
from tests.cluster.conftest import own_profile

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
    """On a login node of a shipped profile, that cluster is meant."""
    monkeypatch.delenv("HPCDDP_CLUSTER", raising=False)
    monkeypatch.setattr(socket, "getfqdn", lambda: host)
    assert current_cluster() == cluster


def test_current_cluster_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """HPCDDP_CLUSTER goes before the host's name, and is taken as it is."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "login-hpc.rcc.mcw.edu")
    monkeypatch.setenv("HPCDDP_CLUSTER", "./mine.yaml")
    assert current_cluster() == "./mine.yaml"


@pytest.mark.parametrize("name", profile_names())
def test_login_hosts_are_those_of_the_whole_profile(name: str) -> None:
    """Reading no more than the key finds what reading the profile finds."""
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
    """However the list is written."""
    file = own_profile("mine", text)
    assert login_hosts(file) == ["a.org", "b.org"]


@pytest.mark.usefixtures("on_host")
def test_ones_own_profile_goes_before_the_shipped_one() -> None:
    """One that extends rcc is of the same login nodes, unless it says otherwise."""
    own_profile("mine", "extends: rcc\n")
    assert current_cluster() == "mine"
    own_profile("mine", "extends: rcc\nlogin_hosts: []\n")
    assert current_cluster() == "rcc"


@pytest.mark.usefixtures("on_host")
def test_a_profile_in_another_encoding_stops_no_command() -> None:
    """It is none of this host's, and is complained of where it is used."""
    own_profile("mine", "").write_bytes("title: Köln".encode("latin-1"))
    assert current_cluster() == "rcc"


@pytest.mark.usefixtures("on_host")
def test_two_of_ones_own_are_not_guessed_between() -> None:
    """Both files are named, and what decides."""
    files = [own_profile(name, "extends: rcc\n") for name in ("first", "second")]
    with pytest.raises(UsageError) as caught:
        current_cluster()
    assert str(caught.value) == (
        f"{HOST} is a login node by `login_hosts` of {files[0]} and {files[1]}: give --cluster, or set HPCDDP_CLUSTER"
    )
