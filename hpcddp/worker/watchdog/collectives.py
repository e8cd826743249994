"""Which collective ranks hang in, and which of them have not come to it, by what each has begun: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpcddp.core.run_key import spans
from hpcddp.core.schema import Count

Groups = Mapping[str, "GroupState"]


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One that a rank has begun."""

    number: Count
    """Within its process group, from 1 on: the same on all of its ranks."""
    name: str
    """all_reduce"""
    of: str = ""
    """Types and sizes of its tensors: `Float[6553600]`."""

    @property
    def words(self) -> str:
        """`all_reduce of Float[6553600]`"""
        return f"{self.name} of {self.of}" if self.of else self.name


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """Of a process group, in one rank."""

    begun: Count
    """Number of the last collective that it has begun."""
    pending: tuple[Collective, ...] = ()
    """Those that have not ended, in order; of many the first ones."""
    members: tuple[Count, ...] = ()
    """Ranks of the group; empty where torch does not say."""


def stalled_collective(ranks: Mapping[int, Groups], world: int) -> str | None:
    """A sentence: `collective 37 (all_reduce of Float[6553600]) waits for rank 3, which has begun 36`. `ranks`: of those that
    answered. None where no rank is in a collective.

    Of several groups the one in which a rank is missing, or in which ranks do different things, comes before one in which all
    wait: ranks that hang in a group do not come to those after it.
    """
    names = dict.fromkeys(name for groups in ranks.values() for name in groups)
    found = [each for name in names if (each := _of_group(name, ranks, world))]
    return min(found, key=lambda each: each[0])[1] if found else None


def _of_group(name: str, ranks: Mapping[int, Groups], world: int) -> tuple[int, str] | None:
    states = {rank: groups[name] for rank, groups in ranks.items() if name in groups}
    first = min((state.pending[0].number for state in states.values() if state.pending), default=None)
    if first is None:
        return None
    waiting = {rank: each for rank, state in states.items() for each in state.pending if each.number == first}
    members = next((state.members for state in states.values() if state.members), tuple(range(world)))
    behind = {rank: states[rank].begun for rank in members if rank in states and states[rank].begun < first}
    unheard = [rank for rank in members if rank not in states]
    where = "" if len(members) >= world else f" of the group of {_ranks(members)}"
    kinds = {each.words for each in waiting.values()}
    if len(kinds) > 1:
        return 0, f"ranks differ in collective {first}{where}: {_kinds(waiting)}"
    what = f"collective {first}{where} ({next(iter(kinds))})"
    if behind or unheard:
        return 0, f"{what} waits for {_missing(behind, unheard)}; in it: {_ranks(waiting)}"
    return 1, f"{what} has been begun by all ranks, and does not end on {_ranks(waiting)}"


def _kinds(waiting: Mapping[int, Collective]) -> str:
    """`all_reduce of Float[7] on ranks 0-2, broadcast of Float[5] on rank 3`"""
    by_words: dict[str, list[int]] = {}
    for rank, each in sorted(waiting.items()):
        by_words.setdefault(each.words, []).append(rank)
    return ", ".join(f"{words} on {_ranks(ranks)}" for words, ranks in by_words.items())


def _missing(behind: Mapping[int, int], unheard: Iterable[int]) -> str:
    numbers = sorted(set(behind.values()))
    begun = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}" if numbers else ""
    words = [f"{_ranks(behind)}, which {'has' if len(behind) == 1 else 'have'} begun {begun}"] if behind else []
    silent = list(unheard)
    return " and ".join([*words, *([f"{_ranks(silent)}, of which nothing is known"] if silent else [])])


def _ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`"""
    numbers = list(ranks)
    stretches = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans(numbers))
    return f"rank{'' if len(numbers) == 1 else 's'} {stretches}"
