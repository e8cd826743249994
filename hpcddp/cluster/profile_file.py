"""Profiles by name or file: reading, with the source of every fact kept beside the plain values."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path as FilePath

from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.cluster.yamlfile import located, read_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import Path, SchemaError, decode, did_you_mean, dotted

FOLDER = FilePath(__file__).parents[1] / "clusters"


def load_profile(cluster: str) -> ClusterProfile:
    """The profile of that name, or of that YAML file."""
    if is_profile_file(cluster):
        return read_profile(FilePath(cluster))
    file = FOLDER / f"{cluster}.yaml"
    if not file.is_file():
        raise UsageError(f"no cluster `{cluster}` in clusters/{did_you_mean(cluster, profile_names())}")
    return read_profile(file)


def is_profile_file(cluster: object) -> bool:
    """Whether a cluster is named by its YAML file: anything with a slash or ending in .yaml."""
    return isinstance(cluster, str) and ("/" in cluster or cluster.endswith((".yaml", ".yml")))


def read_profile(file: FilePath) -> ClusterProfile:
    """A profile from its file; UsageError names the line of what does not fit."""
    data = read_yaml(file)
    facts: dict[Path, Fact] = {}
    try:
        if isinstance(data, dict) and "facts" in data:
            raise SchemaError(("facts",), "`facts` is not a key of a profile: write `{value:, grade:, source:}` in place")
        profile = decode(ClusterProfile, _strip_facts(data, (), facts))
        for path, fact in facts.items():
            _check_sources(fact, path, profile.sources)
    except SchemaError as error:
        raise located(error, file) from error
    template = _template(profile, file)
    return dataclasses.replace(profile, facts={dotted(path): fact for path, fact in facts.items()}, template=template)


def _template(profile: ClusterProfile, file: FilePath) -> str:
    """The path of a template beside the profile, or else the name of one in templates/. A profile reads no file from elsewhere:
    what a template says is printed, and ends up in scripts and bundles.
    """
    beside = (file.parent / profile.template).resolve()
    if file.parent.resolve() not in beside.parents:
        words = f"`{profile.template}` lies elsewhere: put the template beside the profile, or below its folder"
        raise located(SchemaError(("template",), words), file)
    return str(beside) if beside.is_file() else profile.template


def profile_names() -> list[str]:
    """The clusters that come with hpcddp, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def current_cluster() -> str | None:
    """HPCDDP_CLUSTER, else the shipped profile whose login host names match this host's, else None."""
    named = os.environ.get("HPCDDP_CLUSTER")
    if named:
        return named
    import socket

    host = socket.getfqdn()
    for name in profile_names():
        text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        if "login_hosts" in text and any(fnmatch.fnmatch(host, p) for p in load_profile(name).login_hosts):
            return name
    return None


def _strip_facts(data: object, path: Path, facts: dict[Path, Fact]) -> object:
    """`data` with every `{value:, grade:, source:}` replaced by its value; the facts are collected by path."""
    if isinstance(data, dict):
        if len(data.keys() & {"value", "grade", "source"}) >= 2:  # two of them: the third may be missing or misspelt
            facts[path] = decode(Fact, data, path)
            return data["value"]
        return {key: _strip_facts(item, (*path, key), facts) for key, item in data.items()}
    if isinstance(data, list):
        return [_strip_facts(item, (*path, i), facts) for i, item in enumerate(data)]
    return data


def _check_sources(fact: Fact, path: Path, sources: Mapping[str, str]) -> None:
    if fact.source not in sources:
        where = (*path, "source")
        raise SchemaError(where, f"source `{fact.source}` is not among `sources`{did_you_mean(fact.source, sources)}")
    for i, other in enumerate(fact.conflicts):
        _check_sources(other, (*path, "conflicts", i), sources)
