"""What a proposal says of the configuration: which keys were varied beside the size, and what came of it."""

from __future__ import annotations

from hpcddp.analysis.proposal.blocks import Block, Heading, Items
from hpcddp.analysis.proposal.proposal import Proposal
from hpcddp.analysis.study.axis_words import effect_sentence


def what_changes_it(found: Proposal) -> list[Block]:
    """A sentence for each key, at the largest size at which enough runs tell its effect from chance; nothing without one."""
    sentences = []
    for axis in found.found.effects:
        panels = [panel for panel in axis.panels if panel.p is not None]
        sentences += [effect_sentence(axis, panel) for panel in panels[-1:]]
    return [Heading("Effect of each parameter"), Items(sentences)] if sentences else []
