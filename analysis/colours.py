"""The colours of every figure: Okabe and Ito's (jfly.uni-koeln.de/color), told apart with any colour vision, and greys."""

from __future__ import annotations

INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e6e6e6"

PARTS = {
    "data_wait": "#E69F00",
    "h2d_exposed": "#F0E442",
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "comm_exposed": "#D55E00",
    "optimizer": "#009E73",
    "record": "#CC79A7",
    "other": "#9a9a9a",
    "unaccounted": "#dcdcdc",
}
"""Part of a step -> its colour, in the order they are drawn."""

BASELINES = {"1gpu": "#D55E00", "1node": "#0072B2"}
"""What is measured against one GPU, and against one full node."""
