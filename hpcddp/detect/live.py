"""Asks a live Slurm what its cluster is. Every question may fail: what it was about is then unknown, and the problem is noted."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hpcddp.backends.slurm_commands import UNANSWERED, UnansweredError, query
from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import one_line
from hpcddp.detect.accounting import (
    ASSOCIATION_FORMAT,
    QOS_FORMAT,
    Association,
    LiveQos,
    associations_of_json,
    associations_of_text,
    qos_of_json,
    qos_of_text,
)
from hpcddp.detect.fields import integer, word
from hpcddp.detect.nodes import LiveNode, nodes_of_json, nodes_of_text
from hpcddp.detect.partitions import LivePartition, partitions_of_text

TIME_LIMIT_S = 30.0
"""For all questions and `sbatch --test-only` after them."""

READING_S = 20.0
"""Of it for the questions: a frozen controller makes a command give up by itself after 10-20 s (MessageTimeout)."""

Records = TypeVar("Records")


@dataclass(frozen=True, kw_only=True)
class LiveSlurm:
    """What Slurm says of its cluster; None is unknown."""

    nodes: tuple[LiveNode, ...] | None = None
    partitions: tuple[LivePartition, ...] | None = None
    config: Mapping[str, str] | None = None
    """Of `scontrol show config`: MaxArraySize, ClusterName."""
    qos: tuple[LiveQos, ...] | None = None
    associations: tuple[Association, ...] | None = None
    problems: tuple[str, ...] = ()
    """A sentence for each question that was not answered."""

    @property
    def has_accounting(self) -> bool | None:
        """Whether it keeps accounts and QOS."""
        if self.config is None or "AccountingStorageType" not in self.config:
            return None
        kind = self.setting("AccountingStorageType")  # newer Slurm has `(null)` where there is none
        return kind is not None and not kind.endswith("/none")

    @property
    def is_silent(self) -> bool:
        """Whether the controller answered none of its questions, whatever the accounting answered."""
        return self.nodes is None and self.partitions is None and self.config is None

    def setting(self, name: str) -> str | None:
        """A line of slurm.conf as the controller has it."""
        return None if self.config is None else word(self.config.get(name))

    def number(self, name: str) -> int | None:
        return integer(self.setting(name))


@dataclass(frozen=True, kw_only=True)
class _Form(Generic[Records]):
    """One way to ask a question."""

    command: Sequence[str]
    read: Callable[[str], Records]
    """ValueError where the text is no answer."""


def read_live(deadline_s: float) -> LiveSlurm:
    """Asks all questions at once, until `deadline_s` on the monotonic clock; UnansweredError where the controller is away."""
    user = _user()
    with ThreadPoolExecutor(max_workers=5) as pool:
        nodes = pool.submit(_first, "nodes", _node_forms(), deadline_s)
        partitions = pool.submit(_first, "partitions", [_PARTITIONS], deadline_s)
        config = pool.submit(_first, "configuration", [_CONFIG], deadline_s)
        qos = pool.submit(_first, "QOS", _QOS, deadline_s)
        associations = pool.submit(_first, "accounts", _association_forms(user), deadline_s)
    answers = [future.result() for future in (nodes, partitions, config, qos, associations)]
    live = LiveSlurm(
        nodes=nodes.result()[0],
        partitions=partitions.result()[0],
        config=config.result()[0],
        qos=qos.result()[0],
        associations=associations.result()[0],
        problems=tuple(problem for _, problem in answers if problem),
    )
    if all(found is None for found, _ in answers) or (live.is_silent and UNANSWERED.search("\n".join(live.problems))):
        raise UnansweredError("Slurm did not answer:\n" + "\n".join(f"  {text}" for text in live.problems))
    return _without_accounting(live)


def _user() -> str:
    """As Slurm knows whoever asks; a user without an entry in the password database has a number only."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", str(os.getuid()))


def slurm_version(live: LiveSlurm) -> str | None:
    """`22.05.8`."""
    return live.setting("SLURM_VERSION")


def _without_accounting(live: LiveSlurm) -> LiveSlurm:
    """Where there is no accounting, sacctmgr's failures are no news, and there are no accounts."""
    if live.has_accounting is not False:
        return live
    problems = tuple(text for text in live.problems if not text.startswith(("QOS: ", "accounts: ")))
    return replace(live, qos=(), associations=(), problems=problems)


def _first(subject: str, forms: Sequence[_Form[Records]], deadline_s: float) -> tuple[Records | None, str | None]:
    """The first answer, and else what went wrong with the last form that this Slurm knows and had time for."""
    problem = None
    for form in forms:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 and problem is not None:
            break
        try:
            records = form.read(query(form.command, timeout_s=max(0.1, left_s)))
        except HpcddpError as error:
            if problem is None or not _unknown_option(str(error)):
                problem = f"{subject}: `{_shown(form.command)}` failed: {one_line(str(error))}"
            if isinstance(error, UnansweredError):
                break  # to any form
            continue
        except ValueError:
            records = None
        if records:
            return records, None
        problem = problem or f"{subject}: `{_shown(form.command)}` gave no answer that can be read"
    return None, problem


def _shown(command: Sequence[str]) -> str:
    return " ".join(word for word in command if not word.startswith("format="))


def _unknown_option(words: str) -> bool:
    return "unrecognized option" in words or "invalid option" in words


def _json(read: Callable[[object], Records]) -> Callable[[str], Records]:
    return lambda text: read(json.loads(text))


def _node_forms() -> list[_Form[tuple[LiveNode, ...]]]:
    """sinfo comes last: in 22.05 its JSON does not say what is reserved for the system, and later it has no nodes."""
    scontrol = ["scontrol", "--all"]
    return [
        _Form(command=[*scontrol, "--json", "show", "nodes"], read=_json(nodes_of_json)),
        _Form(command=[*scontrol, "--oneliner", "show", "nodes"], read=nodes_of_text),
        _Form(command=["sinfo", "--all", "--json"], read=_json(nodes_of_json)),
    ]


_PARTITIONS = _Form(command=["scontrol", "--all", "--oneliner", "show", "partitions"], read=partitions_of_text)


def _config_of_text(text: str) -> Mapping[str, str]:
    return dict(re.findall(r"^(\S+)\s*= (.*?)\s*$", text, re.MULTILINE))


_CONFIG = _Form(command=["scontrol", "show", "config"], read=_config_of_text)

_QOS = [
    _Form(command=["sacctmgr", "--json", "show", "qos"], read=_json(qos_of_json)),
    _Form(command=["sacctmgr", "-nP", "show", "qos", QOS_FORMAT], read=qos_of_text),
]


def _association_forms(user: str) -> list[_Form[tuple[Association, ...]]]:
    show = ["show", "assoc", f"user={user}"]
    return [
        _Form(command=["sacctmgr", "--json", *show], read=_json(associations_of_json)),
        _Form(command=["sacctmgr", "-nP", *show, ASSOCIATION_FORMAT], read=associations_of_text),
    ]
