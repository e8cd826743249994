"""Names of people, hosts and sites in a study's files, replaced by fixed patterns; what is left of them is told.

Hosts are numbered, the same host by the same word everywhere; users, accounts and paths that are not the system's have one word.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

UNCHANGED_KEYS = (
    *("schema", "hpcddp", "id", "label", "name", "groups", "model", "precision", "layout", "measure", "node_type", "point"),
    *("env_id", "versions", "gpus", "backend", "launcher", "communication", "device", "clock", "tf32", "git_commit"),
    *("state", "job", "array", "task", "token", "event", "entry", "code"),
)
"""Keys whose values say what was run, not where or by whom: they stay as they are, and names in them are told."""

_FIXED_KEYS = {
    **dict.fromkeys(("SLURM_JOB_UID", "SLURM_JOB_GID"), "0"),
    **{"SLURM_JOB_USER": "user", "SLURM_JOB_GROUP": "group", "login_hosts": "login"},
    **dict.fromkeys(("SLURM_JOB_ACCOUNT", "account"), "account"),
    **dict.fromkeys(("SLURM_JOB_RESERVATION", "reservation"), "reservation"),
}
"""Keys whose values are one word, whatever they were."""

_OF_HOSTS = re.compile(r'"(?:host|MASTER_ADDR|SLURM_SUBMIT_HOST)": ?"([^"]+)"|"hosts": ?\[([^\]]*)\]')

_OF_NAMES = {
    "user": r"\"SLURM_JOB_USER\": ?\"([^\"]+)\"|--mail-user[= ]([^\s'\"@]+)|/(?:home|users)/([\w.-]+)"
    r"|(?: on |\"names\": ?\"|\[ ?\"|,)([\w.-]+)@(?=[\w.-]+[,\"])",
    "account": r"\"(?:SLURM_JOB_ACCOUNT|account)\": ?\"([^\"]+)\"|--account[= ]([^\s'\"]+)|#SBATCH\s+-A ?([^\s'\"]+)",
    "group": r"\"SLURM_JOB_GROUP\": ?\"([^\"]+)\"",
    "reservation": r"\"(?:SLURM_JOB_RESERVATION|reservation)\": ?\"([^\"]+)\"|--reservation[= ]([^\s'\"]+)",
}
"""What stands for a name -> where files have such names, which are replaced wherever they are a word."""

_NOBODY = ("", "root", "localhost")
_TEMPORARY = r"(?:tmp|var/tmp|dev/shm|run/user)/."
_SYSTEM = rf"(?!{_TEMPORARY})(?:bin|dev|etc|lib|lib64|path|proc|run|sbin|sys|tmp|usr|var)(?![\w.+@%~-])"
"""First parts of paths that every system has."""

_PATH = re.compile(rf"(?<![\w.$}}/~-])/(?!{_SYSTEM})[\w.+@%~-]+(?:/[\w.+@%~-]+)*")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_DOMAINS = "edu|gov|com|org|net|mil|int|eu|uk|de|fr|it|es|ch|at|be|nl|fi|se|no|dk|cz|us|ca|au|jp|cn|kr|in|br"
"""Those of countries with clusters, without those that end files' names (`py`, `sh`)."""

_SITE = re.compile(rf"(?<![\w@.-])(?:[\w-]+\.)+(?:{_DOMAINS})(?![\w-]|\.\w)")

OURS = ("user@example.org", "example.org", "/path")
"""What stands for mail, sites and paths."""

_REPLACED = (
    (re.compile(r"(--comment[= ])(?:'[^'\n]*'|\"[^\"\n]*\"|[^\n]*)"), r"\1comment"),  # nobody knows where an unquoted name ends
    (re.compile(r"(--(?:nodelist|exclude)[= ]|#SBATCH\s+-[wx] ?)[^\s'\"]+"), r"\1nodes"),
    *zip((_MAIL, _SITE, _PATH), OURS, strict=True),
    (_ADDRESS, "0.0.0.0"),
)

_LIST = re.compile(r"\b[A-Za-z][\w-]*(?:\[\d[\d,-]*\][\w.-]*)+")
"""Hosts as Slurm lists them: `zeus[001-002]`, `r1i[0-1]n[0-17]`."""

_NUMBERED = re.compile(r"([A-Za-z][\w-]{2,}?)\d+")
"""A host's name before its number: shorter ones are words of their own, such as `r1` and `n01`."""

_DOMAIN = r"(?:\.[A-Za-z][\w-]*)*"
_END = r"(?![A-Za-z0-9])"


@dataclass(frozen=True)
class Pseudonyms:
    """Name -> what stands for it; a host by its short name."""

    hosts: Mapping[str, str]
    names: Mapping[str, str]

    @functools.cached_property
    def _host(self) -> re.Pattern[str]:
        """A host with its domain."""
        return re.compile(rf"(?<![A-Za-z0-9])({_any(self.hosts)}){_DOMAIN}{_END}")

    @functools.cached_property
    def _name(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![A-Za-z0-9])(?:{_any(self.names)}){_END}")

    @functools.cached_property
    def _alike(self) -> re.Pattern[str]:
        """Hosts, and lists of them, that are called like a known one but for the number."""
        stems = {match[1] for host in self.hosts if (match := _NUMBERED.fullmatch(host))} - {"node"}
        return re.compile(rf"(?<![\w-])(?:{_any(stems)})(?:\d+|(?:\[\d[\d,-]*\][\w-]*)+){_DOMAIN}{_END}")

    def text(self, text: str) -> str:
        """Free text with all of it replaced."""
        text = self._host.sub(lambda found: self.hosts[found[1]], text)
        text = self._alike.sub(lambda found: "nodes" if "[" in found[0] else "node", text)
        text = self._name.sub(lambda found: self.names[found[0]], text)
        for pattern, word in _REPLACED:
            text = pattern.sub(word, text)
        return text

    def plain(self, value: object, key: str = "", unchanged: bool = False) -> object:
        """The strings of a JSON value replaced, except those that stay."""
        if isinstance(value, dict):
            return {self._key(name, key): self.plain(each, name, _stays(name, unchanged)) for name, each in value.items()}
        if isinstance(value, list):
            return [self.plain(each, key, unchanged) for each in value]
        return value if unchanged or not isinstance(value, str) else _FIXED_KEYS.get(key) or self.text(value)

    def file(self, path: str, data: bytes) -> bytes:
        """A file of the study, its names replaced."""
        if path.endswith(".csv"):
            return data  # numbers
        text = data.decode("utf-8", errors="replace")
        if path.endswith(".jsonl"):
            return "".join(self._json(line, indent=None) + "\n" for line in text.splitlines()).encode()
        return (self._json(text, indent=1) + "\n" if path.endswith(".json") else self.text(text)).encode()

    def path(self, path: str) -> str:
        """`.../nodes/r001.node.csv` -> `.../nodes/node01.node.csv`"""
        folder, _, name = path.rpartition("/")
        stem = host_of(name)
        return f"{folder}/{self._key(stem, 'nodes')}{name[len(stem) :]}" if folder.endswith("/nodes") else path

    def left(self, path: str, data: bytes) -> list[str]:
        """What a replaced file still has: names of people and sites where values must stay, and lists of unknown hosts."""
        if path.endswith(".csv"):
            return []
        text = data.decode("utf-8", errors="replace")
        patterns = (self._name, _PATH, _MAIL, _SITE, _LIST)
        return sorted({each[0] for pattern in patterns for each in pattern.finditer(text)} - {*OURS, *self.names.values()})

    def _key(self, name: str, parent: str) -> str:
        """A host's word, where hosts are what a record is by."""
        return self.hosts.get(name.partition(".")[0], name) if parent == "nodes" else name

    def _json(self, text: str, indent: int | None) -> str:
        try:
            value = json.loads(text)
        except ValueError:
            return self.text(text)  # torn: it stays so
        return json.dumps(self.plain(value), indent=indent, sort_keys=True, separators=None if indent else (",", ":"))


def named_in(files: Iterable[tuple[str, bytes]]) -> Pseudonyms:
    """The names that the study's files, (path, bytes) each, have where such names stand."""
    hosts, names = set[str](), dict[str, str]()
    for path, data in files:
        text = data.decode("utf-8", errors="replace")
        hosts.update(host for found in _OF_HOSTS.finditer(text) for host in re.findall(r'[^\s",]+', found[1] or found[2]))
        hosts.update([host_of(path.rpartition("/")[2])] if "/nodes/" in path else [])
        for word, pattern in _OF_NAMES.items():
            names.update((name, word) for found in re.finditer(pattern, text) for name in found.groups() if _is_name(name))
    known = sorted({host.partition(".")[0] for host in hosts if _is_name(host) and not _ADDRESS.fullmatch(host)})
    width = max(2, len(str(len(known))))
    return Pseudonyms({host: f"node{i:0{width}d}" for i, host in enumerate(known, start=1)}, names)


def host_of(file_name: str) -> str:
    """`r001.node.csv`, `r001.json` -> `r001`"""
    return re.sub(r"\.(?:json|node\.csv|gpus\.csv)$", "", file_name)


def _is_name(name: str | None) -> bool:
    return name is not None and name not in _NOBODY and not name.startswith("$")


def _any(names: Iterable[str]) -> str:
    """A pattern of any of them, the longest first; without names it matches nothing."""
    return "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name)))) or "(?!)"


def _stays(key: str, unchanged: bool) -> bool:
    """Whether what is under this key stays as it is: the folder of a data set (`root`) is no part of what was run."""
    return (unchanged or key in UNCHANGED_KEYS) and key != "root"
