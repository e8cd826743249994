"""Profiles by name, file or this machine's host name: reading, with the source of every fact kept beside the plain values."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath

from hpcddp.cluster.hosts import ON, with_hosts
from hpcddp.cluster.profile import ClusterProfile, Fact, check_fact_sources, check_source, is_fact, strip_facts
from hpcddp.cluster.profile_checks import check_environment, check_profile, refuse_newer
from hpcddp.cluster.profile_names import FOLDER, is_below, is_profile_file, own_profiles, profile_names, profile_path, typed_path
from hpcddp.cluster.yamlfile import located, parse_yaml, read_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import Path, SchemaError, decode, dotted

NOT_IN_THE_FILE = {
    "facts": "write `{value:, grade:, source:}` in place",
    "file": "it is where the profile was read from",
}


def load_profile(cluster: str) -> ClusterProfile:
    """The profile of that name, or of that YAML file; with ` on a,user@b` behind it on these hosts."""
    if ON in cluster:
        name, _, hosts = cluster.partition(ON)
        return with_hosts(load_profile(name), hosts)
    return read_profile(FilePath(cluster) if is_profile_file(cluster) else profile_path(cluster))


def read_profile(file: FilePath) -> ClusterProfile:
    """A profile from its file and those that it extends; UsageError names file and line of what does not fit."""
    data, file_of = merged_document(file)
    facts: dict[Path, Fact] = {}
    try:
        profile = _decoded(data, facts)
        if file == own_profiles().get(file.stem) and profile.name != file.stem:
            words = f"`{profile.name}`: profiles in this folder are found by file name. Write `name: {file.stem}`."
            raise SchemaError(("name",), words)
        template = _template(profile, file_of(("template",)).parent)
    except SchemaError as error:
        raise located(error, file_of(error.path)) from error
    return dataclasses.replace(
        profile,
        facts={dotted(path): fact for path, fact in facts.items()},
        template=template,
        file=None if file.parent == FOLDER else str(file),
    )


def merged_document(file: FilePath) -> tuple[object, Callable[[Path], FilePath]]:
    """What the file and those that it extends come to, and which of them says what is at a path."""
    data = read_yaml(file)
    if not isinstance(data, dict) or "extends" not in data:
        return data, lambda _: file
    from hpcddp.cluster.extends import extended

    return extended(file, data)


def _decoded(data: object, facts: dict[Path, Fact]) -> ClusterProfile:
    """The profile that the document says; its facts are collected by path."""
    refuse_newer(data)
    for key, instead in NOT_IN_THE_FILE.items():
        if isinstance(data, dict) and key in data:
            raise SchemaError((key,), f"`{key}` is not a key of a profile: {instead}")
    profile = decode(ClusterProfile, strip_facts(data, (), facts))
    for path, fact in facts.items():
        check_fact_sources(fact, path, profile.sources)
    for i, rule in enumerate(profile.env_rules):
        check_source(rule.source, ("env_rules", i), profile.sources)
    check_profile(profile)
    check_environment(profile)
    return profile


def _template(profile: ClusterProfile, folder: FilePath) -> str:
    """The path of a template in the folder of the profile that names it, or else the name of one in templates/. A profile reads
    no file from elsewhere: what a template says is printed, and ends up in scripts and bundles.
    """
    beside = (folder / profile.template).resolve()
    if not is_below(beside, folder):
        words = f"`{profile.template}` is in another folder. Move the template to the profile's folder or below."
        raise SchemaError(("template",), words)
    return str(beside) if beside.is_file() else profile.template


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
        raise UsageError(f"{host} is a login node by `login_hosts` of {files}: choose one with --cluster or HPCDDP_CLUSTER")
    shipped = (FOLDER / f"{name}.yaml" for name in profile_names())
    return next((file.stem for file in own or _matching(host, shipped)), None)


def _matching(host: str, files: Iterable[FilePath]) -> list[FilePath]:
    return [file for file in files if any(fnmatch.fnmatch(host, pattern) for pattern in login_hosts(file))]


def login_hosts(file: FilePath) -> list[str]:
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
