"""The page of a strong and a weak study in words: what both have in common once, the rest one beside or below the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.proposal.blocks import Block, Heading, Items, Picture, Text
from hpcddp.analysis.proposal.gpu_use import gpu_use
from hpcddp.analysis.proposal.page import (
    CAPTIONS,
    baselines,
    fact_lines,
    job_size,
    method_words,
    page,
    resources,
    scaling_table,
    source_lines,
    summary,
    unknown_lines,
    workload_words,
)
from hpcddp.analysis.proposal.pair import ProposalPair
from hpcddp.analysis.proposal.proposal import Proposal


def page_of(found: Proposal | ProposalPair, figures: Sequence[str] = ()) -> list[Block]:
    """The page of one study, or of two."""
    return pair_page(found, figures) if isinstance(found, ProposalPair) else page(found, figures)


def pair_page(found: ProposalPair, figures: Sequence[str] = ()) -> list[Block]:
    """`figures`: names of those that lie beside the page."""
    both = (found.strong, found.weak)
    blocks: list[Block] = [Heading(f"Scaling and resources: {found.strong.name} and {found.weak.name}")]
    blocks += [Text(f"{kind_name(each)}: {summary(each)}") for each in both]
    blocks += [*(Text(workload_words(each)) for each in both), Text(method_words(found.strong))]
    blocks += [Heading("Hardware and software"), Items(list(_common(found, *(list(fact_lines(each)) for each in both))))]
    for each in both:
        blocks += [Heading(f"{kind_name(each)}: {each.name}"), scaling_table(each)]
    blocks += [Picture(name, _caption(found, name)) for name in figures]
    blocks += [Heading("Job size"), *(Text(f"{kind_name(each)}: {job_size(each)}") for each in both)]
    blocks += [Heading("Resources")]
    for each in both:
        blocks += resources(each)
    for each in both:  # how to read them stands above the first
        use = [block for block in gpu_use(each) if block not in blocks]
        blocks += [Heading(f"{block.text}: {short_kind(each)}") if isinstance(block, Heading) else block for block in use]
    if unknown := list(_common(found, *(list(unknown_lines(each)) for each in both))):
        blocks += [Heading("Not known"), Items(unknown)]
    return [*blocks, Heading("Runs behind the numbers"), Items([line for each in both for line in source_lines(each)])]


def kind_name(found: Proposal) -> str:
    """`Strong scaling (fixed epoch)`"""
    return found.kind[:1].upper() + found.kind[1:]


def short_kind(found: Proposal) -> str:
    """`strong scaling`"""
    return found.kind.partition(" (")[0]


def _common(found: ProposalPair, strong: Sequence[str], weak: Sequence[str]) -> Iterator[str]:
    """What both say once, and after it what one says alone, with its kind of scaling."""
    yield from (text for text in strong if text in weak)
    for each, mine, others in ((found.strong, strong, weak), (found.weak, weak, strong)):
        yield from (f"{short_kind(each)}: {text}" for text in mine if text not in others)


def _caption(found: ProposalPair, name: str) -> str:
    """Full nodes are of one type, and so the baselines are named once; each panel has its own."""
    panels = " and ".join(f"{each.name} ({short_kind(each)})" for each in (found.strong, found.weak))
    return f"{CAPTIONS[name]} of {panels}, each against its own {baselines(found.strong)}."
