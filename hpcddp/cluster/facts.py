"""Values written as facts, `{value: 32, grade: A, source: wiki}`: apart from the plain values that code reads."""

from __future__ import annotations

from collections.abc import Mapping

from hpcddp.cluster.profile import Fact
from hpcddp.core.schema import Path, SchemaError, decode, did_you_mean

FACT_KEYS = frozenset({"value", "grade", "source"})


def is_fact(data: object) -> bool:
    """Whether a mapping is meant as a fact: it has two of the three keys, so that the third may be missing or misspelt.

    A rule of `env_rules`, which has a value and a source of its own, has a name.
    """
    return isinstance(data, dict) and len(data.keys() & FACT_KEYS) >= 2 and "name" not in data


def strip_facts(data: object, path: Path, facts: dict[Path, Fact]) -> object:
    """`data` with the value in place of every fact; the facts are collected by path."""
    if isinstance(data, dict):
        if is_fact(data):
            facts[path] = decode(Fact, data, path)
            return data["value"]
        return {key: strip_facts(item, (*path, key), facts) for key, item in data.items()}
    if isinstance(data, list):
        return [strip_facts(item, (*path, i), facts) for i, item in enumerate(data)]
    return data


def check_fact_sources(fact: Fact, path: Path, sources: Mapping[str, str]) -> None:
    """SchemaError where the fact, or a conflict of it, names a source that is not among `sources`."""
    check_source(fact.source, path, sources)
    for i, other in enumerate(fact.conflicts):
        check_fact_sources(other, (*path, "conflicts", i), sources)


def check_source(source: str, path: Path, sources: Mapping[str, str]) -> None:
    """SchemaError where what stands at `path` has a source that is not among `sources`."""
    if source not in sources:
        raise SchemaError((*path, "source"), f"source `{source}` is not among `sources`{did_you_mean(source, sources)}")
