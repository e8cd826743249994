"""Names of hosts and people, and their folders, replaced in a study's files: the same name by the same word everywhere."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import point_from_dict
from hpcddp.core.schema import SchemaError

UNCHANGED_KEYS = (
    *("schema", "hpcddp", "id", "label", "name", "groups", "model", "precision", "layout", "measure", "node_type"),
    *("point", "env_id", "versions", "gpus", "backend", "launcher", "communication", "device", "clock", "tf32", "git_commit"),
    *("state", "job", "array", "task", "token", "event", "entry", "code"),
)
"""Keys whose values say what was run, not where or by whom; these values stay as they are (`point` where it is an id)."""

_PEOPLE = {
    "SLURM_JOB_USER": "user",
    "SLURM_JOB_ACCOUNT": "account",
    "SLURM_JOB_GROUP": "group",
    "SLURM_JOB_RESERVATION": "reservation",
    "account": "account",
    "reservation": "reservation",
}
"""Keys -> what their values are names of."""

_OF_OPTION = {"mail-user": "user"}

_HOSTS = ("host", "hosts", "MASTER_ADDR", "SLURM_SUBMIT_HOST")
_NUMBERS = ("SLURM_JOB_UID", "SLURM_JOB_GID")

_OPTION = re.compile(r"--(account|reservation|mail-user)[= ]([^\s'\"@]+)(?![^\s'\"])|#SBATCH\s+-(A) ?([^\s'\"]+)")
_COMMENT = re.compile(r"(--comment[= ])(?:'[^'\n]*'|\"[^\"\n]*\"|[^\n]*)")
"""Without quotes up to the end of the line: nobody knows where a name in it ends."""
_NODES = re.compile(r"(--(?:nodelist|exclude)[= ]|#SBATCH\s+-[wx] ?)[^\s'\"]+")
_HOME = re.compile(r"/(?:home|users)/([\w.-]+)")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_PATH = re.compile(r"(?<![\w.$}/~-])/[\w.+@%~-]+(?:/[\w.+@%~-]+)*")
_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "study", "sys", "usr", "tmp", "var")
"""First parts of paths that say nothing of a person."""

_TEMPORARY = re.compile(r"/(?:tmp|var/tmp|dev/shm|run/user)/.+")
_PYTHON = re.compile(r"(/.+)/bin/python[\d.]*")
_EVERYWHERE = ("/usr", "/usr/local")
"""Where a Python says nothing of its place."""

_LIST = re.compile(r"\b([A-Za-z][\w-]*)(?:\[\d[\d,-]*\][\w.-]*)+")
"""Hosts as Slurm lists them: `zeus[001-002]`, `r1i[0-1]n[0-17]`."""

_URL = re.compile(r"\bhttps?://([\w.-]+)")

_NUMBERED = re.compile(r"([A-Za-z][\w-]{2,}?)\d+")
"""A host's name before its number: shorter ones are words of their own, such as `r1` and `n01`."""

_REGISTERED_DOMAIN = re.compile(r"(?:^|\.)([\w-]+\.(?:(?:ac|co|com|edu|gov|net|org)\.[a-z]{2}|[a-z]{2,}))$")
"""Of a host's full name the domain that somebody registered; below `ac.uk` and its like it has three parts."""

_PLACEHOLDER = re.compile(r"/(?:path\d+|study)(?:/|$)")
"""What stands for paths."""

NOBODY = ("root", "localhost", "127.0.0.1")


@dataclass(frozen=True)
class Pseudonyms:
    """Name -> what stands for it, and paths -> theirs."""

    names: Mapping[str, str]
    paths: Mapping[str, str]
    hosts: frozenset[str] = frozenset()
    """Short names."""
    domains: frozenset[str] = frozenset()

    @functools.cached_property
    def _any(self) -> re.Pattern[str]:
        """Matches any of the names that is not part of a longer word, the longest first; without names it matches nothing."""
        longest = sorted(self.names, key=lambda name: (-len(name), name))
        return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest))})(?![A-Za-z0-9])" if longest else r"(?!)")

    @functools.cached_property
    def _any_domain(self) -> re.Pattern[str]:
        """Matches any of the domains with all that is below it."""
        some = "|".join(map(re.escape, sorted(self.domains)))
        return re.compile(rf"(?<![\w@-])(?:[\w-]+\.)*(?:{some})(?![\w-])" if some else r"(?!)")

    @functools.cached_property
    def _any_host(self) -> re.Pattern[str]:
        """Matches any host that is named like a known one but for its number."""
        stems = {match[1] for host in self.hosts if (match := _NUMBERED.fullmatch(host))} - {"node"}
        some = "|".join(map(re.escape, sorted(stems)))
        return re.compile(rf"(?<![\w-])(?:{some})\d+(?![A-Za-z0-9])" if some else r"(?!)")

    def text(self, text: str) -> str:
        """Free text with all of it replaced."""
        text = _PATH.sub(lambda found: self.paths.get(found[0], found[0]), self.without_names(text))
        return _ADDRESS.sub("0.0.0.0", text)

    def without_names(self, text: str) -> str:
        """The same, except paths and addresses."""
        text = _COMMENT.sub(r"\1comment", _NODES.sub(r"\1nodes", text))
        text = self._any_host.sub("node", self._named(_LIST.sub(self._list, text)))
        text = _MAIL.sub("user@example.org", text)
        return self._any_domain.sub("example.org", text)

    def _list(self, found: re.Match[str]) -> str:
        """A list without a known host may be anything: it stays, and `left` reports it."""
        return "nodes" if any(host.startswith(found[1]) for host in self.hosts) else found[0]

    def plain(self, value: object, key: str = "", hosts: tuple[str, ...] = ()) -> object:
        """The strings of a JSON value replaced, except under UNCHANGED_KEYS; `hosts` are those of the record it is in."""
        if key in UNCHANGED_KEYS and not (key == "point" and isinstance(value, dict)):
            return value
        if isinstance(value, dict):
            hosts = tuple(map(str, value["hosts"])) if isinstance(value.get("hosts"), list) else hosts
            return {name: self.plain(each, name, hosts) for name, each in value.items()}
        if isinstance(value, list):
            return [self.plain(each, key, hosts) for each in value]
        if not isinstance(value, str):
            return value
        if key.endswith("NODELIST"):
            return ",".join(self._named(host) for host in hosts) or "nodes"
        return "0" if key in _NUMBERS else self.text(value)

    def file(self, path: str, data: bytes) -> bytes:
        """A file of the study, its names replaced."""
        if path.endswith(".csv"):
            return data  # numbers
        text = data.decode("utf-8", errors="replace")
        if path.endswith(".jsonl"):
            return "".join(self._json(line, indent=None) + "\n" for line in text.splitlines()).encode()
        if path.endswith(".json"):
            done = self._json(text, indent=1) + "\n"
            _same_point(path, done)
            return done.encode()
        return self.text(text).encode()

    def path(self, path: str) -> str:
        """`.../nodes/r001.node.csv` -> `.../nodes/node01.node.csv`"""
        folder, _, name = path.rpartition("/")
        if not folder.endswith("/nodes"):
            return path
        stem = host_of(name)
        return f"{folder}/{self.names.get(stem, stem)}{name[len(stem) :]}"

    def left(self, path: str, data: bytes) -> list[str]:
        """What is still in it: names of people, hosts and sites in words that must stay, unknown hosts, and paths."""
        if path.endswith(".csv"):
            return []
        texts = [text for _, text in _values(path, data.decode("utf-8", errors="replace"))]
        found = {name for text in texts for name in (*self._any.findall(text), *self._any_domain.findall(text))}
        found.update(each[0] for text in texts for each in _LIST.finditer(text))
        found.update(site for text in texts for site in _URL.findall(text))
        paths = {path for text in texts for path in _PATH.findall(text)}
        found.update(path for path in paths if _is_personal(path) and not _PLACEHOLDER.match(path))
        return sorted(found - {"example.org"})

    def _named(self, text: str) -> str:
        return self._any.sub(lambda found: self.names[found[0]], text)

    def _json(self, text: str, indent: int | None) -> str:
        try:
            value = json.loads(text)
        except ValueError:
            return self.text(text)  # torn: it stays so
        separators = None if indent else (",", ":")
        return json.dumps(self.plain(value), indent=indent, sort_keys=True, separators=separators)


def find_pseudonyms(files: Iterable[tuple[str, bytes]], folder: str) -> Pseudonyms:
    """From everything that names somebody in the study's files, (path, bytes) each; `folder` is the study's own place."""
    found: dict[str, set[str]] = {}
    studies, paths, domains = {folder}, set[str](), set[str]()
    for path, data in files:
        if "/nodes/" in path:
            _add(found, "node", host_of(PurePosixPath(path).name))
        values = _values(path, data.decode("utf-8", errors="replace"))
        for kind, name in (each for key, text in values for each in (*_named_by_key(key, text), *_named_in_text(text))):
            studies.add(name) if kind == "study" else _add(found, kind, name)
        paths.update(path for _, text in values for path in _PATH.findall(text))
        domains.update(name.partition("@")[2] for _, text in values for name in _MAIL.findall(text))
        domains.update(text for key, text in values if key == "login_hosts")
    hosts = found.get("node", set())
    names = {name: word for kind, members in found.items() for name, word in _numbered(kind, members).items()}
    names |= {each: "/study" for each in studies if each.count("/") > 1}
    pythons = {match[1] for path in paths if (match := _PYTHON.fullmatch(path)) and match[1] not in _EVERYWHERE}
    ours = [each for each in paths if (_is_personal(each) or _below(each, pythons)) and not _below(each, studies)]
    short = frozenset(host.partition(".")[0] for host in hosts if not _ADDRESS.fullmatch(host))
    named = [name for name in {*hosts, *domains} if not _ADDRESS.fullmatch(name)]
    registered = frozenset(match[1] for name in named if (match := _REGISTERED_DOMAIN.search(name)))
    replaced = Pseudonyms(names, {}, short, registered)
    return replace(replaced, paths=_numbered("/path", {replaced.without_names(path) for path in ours}))


def _is_personal(path: str) -> bool:
    """Whether a path may name somebody: not one that every system has, unless it is a temporary folder."""
    return path.split("/")[1] not in _SYSTEM or _TEMPORARY.fullmatch(path) is not None


def host_of(file_name: str) -> str:
    """`r001.node.csv`, `r001.json` -> `r001`"""
    return re.sub(r"\.(?:json|node\.csv|gpus\.csv)$", "", file_name)


def _named_by_key(key: str, value: str) -> Iterator[tuple[str, str]]:
    """(kind, name) of what stands under a key that says what it is."""
    if key in _HOSTS:
        yield "node", value
    elif key in _PEOPLE:
        yield _PEOPLE[key], value
    elif key == "study" and value.startswith("/"):
        yield "study", value


def _named_in_text(text: str) -> Iterator[tuple[str, str]]:
    """(kind, name) of what options of sbatch and folders of users name."""
    for option, value, short, other in _OPTION.findall(text):
        yield ("account" if short else _OF_OPTION.get(option, option)), value or other
    yield from (("user", name) for name in _HOME.findall(text))


def _values(path: str, text: str) -> list[tuple[str, str]]:
    """(key, string) of every JSON value in the text; of other text, and where it is damaged, all of it under no key."""
    documents = text.splitlines() if path.endswith(".jsonl") else [text]
    found: list[tuple[str, str]] = []
    for each in documents:
        try:
            found.extend(_strings(json.loads(each), "") if path.endswith((".json", ".jsonl")) else [("", each)])
        except ValueError:
            found.append(("", each))
    return found


def _strings(value: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each, key)
    elif isinstance(value, str):
        yield key, value


def _add(found: dict[str, set[str]], kind: str, name: str) -> None:
    """A host by its full name and its short one."""
    if name and name not in NOBODY and not name.startswith("$"):
        found.setdefault(kind, set()).add(name)
        if kind == "node" and not _ADDRESS.fullmatch(name):
            found[kind].add(name.partition(".")[0])


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    """node01, node02, ...; a person who is alone has no number. A host's full name gets its short one's word."""
    names = set(names)
    shorts = sorted({name.partition(".")[0] if kind == "node" and not _ADDRESS.fullmatch(name) else name for name in names})
    width = max(2, len(str(len(shorts))))
    words = {
        short: kind if len(shorts) == 1 and kind not in ("node", "/path") else f"{kind}{i:0{width}d}"
        for i, short in enumerate(shorts, start=1)
    }
    return {name: words.get(name) or words[name.partition(".")[0]] for name in sorted(names)}


def _below(path: str, studies: Iterable[str]) -> bool:
    return any(path == study or path.startswith(f"{study}/") for study in studies)


def _same_point(path: str, text: str) -> None:
    """HpcddpError where a name was a word of the point itself."""
    if not path.endswith("/point.json"):
        return
    try:
        plain = json.loads(text)
        same = point_from_dict(plain["point"]).id == plain["id"]
    except (SchemaError, KeyError, ValueError, TypeError):
        return  # damaged before
    if not same:
        raise HpcddpError(f"{path}: a name to be replaced is part of what was run; bundle it without --pseudonymise")
