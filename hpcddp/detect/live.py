"""Asks a live Slurm what its cluster is. Every question may fail: what it was about is then unknown, and the problem is noted."""

from __future__ import annotations

import functools
import os
import pwd
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from hpcddp.backends.slurm_commands import UNANSWERED, UnansweredError, query
from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import one_line
from hpcddp.detect.fields import integer, word
from hpcddp.detect.nodes import LiveNode, nodes_of_text
from hpcddp.detect.partitions import (
    ASSOCIATION_FORMAT,
    QOS_FORMAT,
    Association,
    LivePartition,
    LiveQos,
    associations_of_text,
    partitions_of_text,
    qos_of_text,
)

TIME_LIMIT_S = 30.0
"""For all questions and `sbatch --test-only` after them."""

READING_S = 20.0
"""Of it for the questions: a frozen controller makes a command give up by itself after 10-20 s (MessageTimeout)."""


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


def read_live(deadline_s: float) -> LiveSlurm:
    """Asks all questions at once, until `deadline_s` on the monotonic clock; UnansweredError where the controller is away."""
    questions = _questions(_user())
    with ThreadPoolExecutor(max_workers=len(questions)) as pool:
        answers = dict(zip(questions, pool.map(functools.partial(_answer, deadline_s), questions.values()), strict=True))
    found: dict[str, Any] = {field: records for field, (records, _) in answers.items()}
    problems = tuple(problem for _, problem in answers.values() if problem)
    live = LiveSlurm(**found, problems=problems)
    if all(records is None for records in found.values()) or (live.is_silent and UNANSWERED.search("\n".join(problems))):
        raise UnansweredError("Slurm did not answer:\n" + "\n".join(f"  {text}" for text in problems))
    return _without_accounting(live)


@dataclass(frozen=True)
class _Question:
    """What is asked, and how the answer is read: in text, which has the same fields in each version; JSON has other ones."""

    subject: str
    command: str
    read: Callable[[str], Any]


def _questions(user: str) -> dict[str, _Question]:
    """By field of LiveSlurm."""
    return {
        "nodes": _Question("nodes", "scontrol --all --oneliner show nodes", nodes_of_text),
        "partitions": _Question("partitions", "scontrol --all --oneliner show partitions", partitions_of_text),
        "config": _Question("configuration", "scontrol show config", _config_of_text),
        "qos": _Question("QOS", f"sacctmgr -nP show qos {QOS_FORMAT}", qos_of_text),
        "associations": _Question("accounts", f"sacctmgr -nP show assoc user={user} {ASSOCIATION_FORMAT}", associations_of_text),
    }


def _config_of_text(text: str) -> Mapping[str, str]:
    return dict(re.findall(r"^(\S+)\s*= (.*?)\s*$", text, re.MULTILINE))


def _answer(deadline_s: float, question: _Question) -> tuple[Any, str | None]:
    """The answer, or what went wrong."""
    words = f"{question.subject}: `{question.command.partition(' format=')[0]}`"
    try:
        records = question.read(query(question.command.split(" "), timeout_s=max(0.1, deadline_s - time.monotonic())))
    except HpcddpError as error:
        return None, f"{words} failed: {one_line(str(error))}"
    return (records, None) if records else (None, f"{words} gave no readable answer")


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
