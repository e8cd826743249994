"""The cluster of this machine, by the host names of login nodes."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable
from pathlib import Path

from hpcddp.cluster.facts import is_fact
from hpcddp.cluster.paths import typed_path
from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.profile_names import FOLDER, own_profiles, profile_names
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError

LOGIN_HOSTS = re.compile(r"^login_hosts:.*\n?(?:[ \t#-].*\n?|\n)*", re.MULTILINE)
"""The key with its value, as far as lines are indented, list items or comments."""


def current_cluster() -> str | None:
    """HPCDDP_CLUSTER, else the profile whose login host names match this host's, the user's own before hpcddp's, else None.

    UsageError where two of the user's own match.
    """
    named = os.environ.get("HPCDDP_CLUSTER")
    if named:
        return named
    import socket

    host = socket.getfqdn()
    own = _matching(host, own_profiles().values())
    if own[1:]:
        files = " and ".join(typed_path(file) for file in own)
        raise UsageError(f"{host} is a login node by `login_hosts` of {files}: give --cluster, or set HPCDDP_CLUSTER")
    shipped = (FOLDER / f"{name}.yaml" for name in profile_names())
    return next((file.stem for file in own or _matching(host, shipped)), None)


def _matching(host: str, files: Iterable[Path]) -> list[Path]:
    return [file for file in files if any(fnmatch.fnmatch(host, pattern) for pattern in login_hosts(file))]


def login_hosts(file: Path) -> list[str]:
    """`login_hosts` of a profile, of which no more is read than that where it says so itself: there may be many profiles."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if not re.search(r"(login_hosts|extends)[\"']?\s*:", text):
        return []
    found = LOGIN_HOSTS.search(text)
    hosts = parse_yaml(found[0], str(file))["login_hosts"] if found else None
    if isinstance(hosts, dict) and is_fact(hosts):
        hosts = hosts.get("value")
    if isinstance(hosts, list) and all(isinstance(pattern, str) for pattern in hosts):
        return hosts
    return list(read_profile(file).login_hosts)
