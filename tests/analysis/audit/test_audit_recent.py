"""Tables published from 2024 to 2026, each judged by hand first: what is wrong is found, and what is right raises nothing.

Each file of tests/analysis/audits/published names its source in its first line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import audits

PUBLISHED = Path(__file__).parents[1] / "audits" / "published"

JUDGED: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
    # Times, throughput of the same samples, speedups and efficiencies agree.
    "agnews-ddp": [],
    "gpt2-bigpurple": [],
    # One GPU without is the usual baseline of many.
    "kempnerforge-7b-scaling": [],
    # Weak scaling against 32 GPUs, which the page names with its reason: 70B at 8 GPUs is short of memory.
    "kempnerforge-weak-160gpu": [],
    # `Tokens/sec` is of one GPU: its page says `14,796 tok/s/GPU` above the table.
    "torchtitan-deepep": [("rate_of_one_gpu", (4, 5, 6, 7, 8), "1773568 on all GPUs")],
    "torchtitan-llama3-h200": [],
    # tokens/s of all GPUs, three context lengths and two modes apart.
    "vectorlm-llama3-a100": [],
}


AS_PRINTED: dict[str, list[tuple[str, tuple[int, ...]]]] = {
    "mpi-sum": [("superlinear", (4,))],
    "diagonalization": [("baselines_mixed", (3,)), ("superlinear", (3, 4))],
    # Times and rates contradict each other; by rates, two and four GPUs are above linear.
    "julia-python": [
        ("superlinear", (6, 7)),
        ("superlinear", (6, 8)),
        ("throughput_wrong", (3, 4, 5)),
        ("throughput_wrong", (6, 7, 8)),
    ],
    "python-code": [("batch_changed", (5, 6))],
    "setups": [("superlinear", (5,)), ("superlinear", (6,)), ("superlinear", (7,)), ("superlinear", (8,))],
    "evaluation": [("superlinear", (6,))],
    # 39.06 / 10.02 is 3.90, not 3.91.
    "frames": [("speedup_wrong", (9,))],
    # 47,123 / 12,456 / 4 is 94.6 %, not 94.8; 91,567 / 12,456 / 8 is 91.9, not 91.7.
    "rdma": [("efficiency_wrong", (7,)), ("efficiency_wrong", (8,))],
    # 76,500 and 155,000 of 8,200 are 117 and 118 % on 8 and 16 times the GPUs.
    "polaris": [("superlinear", (3, 4)), ("superlinear", (3, 5))],
}
"""Of tables in Markdown and LaTeX: what is wrong, by class and lines; nothing in those that are not named."""


@pytest.mark.parametrize("name", sorted(path.stem for path in PUBLISHED.glob("*.csv")))
def test_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    """As judged by hand."""
    result = audits(PUBLISHED / f"{name}.csv")[0]
    assert [(each.kind, each.lines, each.follows) for each in result.findings] == JUDGED[name]


@pytest.mark.parametrize(
    "file", [path for path in sorted(PUBLISHED.iterdir()) if path.suffix in (".md", ".tex")], ids=lambda path: path.stem
)
def test_tables_are_read_as_they_were_printed(file: Path) -> None:
    """Every row that tells a size, and no false finding."""
    if file.stem == "SOURCES":
        return
    (result,) = audits(file)
    assert sorted({(each.kind, each.lines) for each in result.findings}) == sorted(AS_PRINTED.get(file.stem, []))
    assert f"| {file.stem} | " in (PUBLISHED / "SOURCES.md").read_text(encoding="utf-8")


def test_every_table_names_its_source() -> None:
    """Repository, path and commit."""
    for path in PUBLISHED.glob("*.csv"):
        words = path.read_text(encoding="utf-8").splitlines()[0].split()
        assert words[0] == "#"
        assert "/" in words[1]
        assert len(words[-1].removeprefix("@")) == 40
    assert len(JUDGED) == 7
