"""The page of a strong and a weak study: what stands there once, what of each, and what does not belong together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.figures.style import STYLES
from hpcddp.analysis.proposal.blocks import Heading, Items
from hpcddp.analysis.proposal.figures import drawings
from hpcddp.analysis.proposal.pair import ProposalPair, pair
from hpcddp.analysis.proposal.pair_page import page_of
from hpcddp.analysis.proposal.proposal import Proposal, propose
from hpcddp.analysis.proposal.write import to_markdown
from hpcddp.core.errors import UsageError
from tests.analysis.synthetic import MS, point, write_runs, write_study

SAMPLES = {"data": {"name": "synthetic-imagenet", "samples": 3_200_000}}
STRONG_MS = {(1, 4): (32, 100), (2, 4): (16, 62.5)}
"""128 samples a step in all: 1,280 and 2,048 samples/s, 80 % on two nodes."""
WEAK_MS = {(1, 4): (32, 100), (2, 4): (32, 111)}


def study(folder: Path, times: Mapping[tuple[int, int], tuple[int, float]], hold: str, **changes: Any) -> Proposal:
    """Full nodes with one run each: (nodes, GPUs) -> batch per GPU and ms a step."""
    launch = {**SAMPLES, **changes.pop("launch", {})}
    points = {point(*layout, batch_per_gpu=batch, **changes): ms for layout, (batch, ms) in times.items()}
    written = write_study(folder, list(points), 1, hold)
    for each, ms in points.items():
        write_runs(written, each, [round(ms * MS)], launch=launch)
    return propose(written, epochs=2)


def strong(folder: Path, **changes: Any) -> Proposal:
    return study(folder / "fixed", STRONG_MS, "global_batch", **changes)


def weak(folder: Path, **changes: Any) -> Proposal:
    return study(folder / "grown", WEAK_MS, "batch_per_gpu", **changes)


def test_each_study_has_its_own_baselines_size_and_costs(tmp_path: Path) -> None:
    """In the order strong, weak however they are given; sources are told from each other; what both say stands there once."""
    found = pair(weak(tmp_path), strong(tmp_path), ("w", "s"))
    assert (found.strong.name, found.weak.name) == ("fixed", "grown")
    blocks = page_of(found)
    headings = [block.text for block in blocks if isinstance(block, Heading)]
    assert headings == [
        "Scaling and resources: fixed and grown",
        "Hardware and software",
        "Strong scaling (fixed global batch): fixed",
        "Weak scaling (fixed batch per GPU): grown",
        "Job size",
        "Resources",
        "Use of the GPUs: strong scaling",
        "Use of the GPUs: weak scaling",
        "Not known",
        "Runs behind the numbers",
    ]
    text = to_markdown(blocks)
    assert "Strong scaling (fixed global batch): 2 nodes (8 GPUs) \\[S2\\]: the largest size" in text
    assert "one node; 80 % efficiency against one node." in text
    assert "Weak scaling (fixed batch per GPU): 2 nodes (8 GPUs) \\[W2\\]: the largest size" in text
    assert "one node; 90 % efficiency against one node." in text
    assert [text.count(f"| \\[{mark}\\] |") for mark in ("S1", "S2", "W1", "W2")] == [2] * 4  # the table, and the use of GPUs
    assert text.count("Each number is the median over n runs") == 1
    assert text.count("- GPU: V100") == text.count("- Energy: it was not recorded.") == 1
    facts, *_, unknown, _ = (block for block in blocks if isinstance(block, Items))
    assert not any("scaling" in text for text in facts.texts)
    assert any(text.startswith("weak scaling: Whether a training takes as many epochs") for text in unknown.texts)


def test_software_that_differs_is_named_with_its_study(tmp_path: Path) -> None:
    """Each study is measured against its own baseline, so that both may stand there."""
    text = to_markdown(
        page_of(pair(strong(tmp_path), weak(tmp_path, launch={"env_id": "other", "versions": {"torch": "2.5.1"}}), ("s", "w")))
    )
    assert "- strong scaling: software: torch 2.7.1" in text
    assert "- weak scaling: software: torch 2.5.1" in text


@pytest.mark.parametrize("style", ["default", "paper", "slides"])
def test_figures_are_side_by_side_on_one_scale(tmp_path: Path, style: str) -> None:
    """A panel for each, named; the caption names the baselines."""
    found = pair(strong(tmp_path), weak(tmp_path), ("s", "w"))
    figures = drawings(found, STYLES[style])
    assert list(figures) == ["scaling", "efficiency"]
    for draw in figures.values():
        figure = draw()
        left, right = [axes for axes in figure.axes if axes.get_visible()]
        assert left.get_ylim() == right.get_ylim()
        assert left.get_title(loc="left").replace("\n", " ").startswith("Strong scaling: fixed")
        assert right.get_title(loc="left").replace("\n", " ").startswith("Weak scaling: grown")
    text = to_markdown(page_of(found, list(figures)))
    assert (
        "\nEfficiency of fixed (strong scaling) and grown (weak scaling), each against its own one GPU and one node of 4 GPUs.\n"
        in text
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "resnet50"}, "w and s do not belong on one page: model is resnet50 and resnet18. Give each its own page"),
        ({"precision": "bf16"}, "precision is bf16 and fp32"),
        ({"node_type": "other"}, "node type is other and "),
        ({"model": "vgg11", "precision": "bf16", "channels_last": True, "node_type": "x"}, ", and 1 more. Give"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """With what differs, in a sentence."""
    with pytest.raises(UsageError) as caught:
        pair(weak(tmp_path, **changes), strong(tmp_path), ("w", "s"))
    assert says in str(caught.value)


def test_two_of_a_kind_are_refused(tmp_path: Path) -> None:
    """One is to be strong, the other weak."""
    with pytest.raises(
        UsageError, match=r"w and w are both weak scaling \(fixed batch per GPU\): a page takes a strong and a weak"
    ):
        pair(weak(tmp_path / "a"), weak(tmp_path / "b"), ("w", "w"))


def test_one_study_is_no_pair(tmp_path: Path) -> None:
    """Its page is what it was."""
    found = weak(tmp_path)
    assert not isinstance(found, ProposalPair)
    assert "[1]" in "".join(text for block in page_of(found) if isinstance(block, Items) for text in block.texts)
