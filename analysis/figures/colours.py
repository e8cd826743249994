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
    "transfer": "#D55E00",
    "peer_wait": "#CC79A7",
    "optimizer": "#009E73",
    "other": "#555555",
    "unaccounted": "#dcdcdc",
}
"""What is shown of a step -> its colour, in the order it is drawn.

An exchange that could not be split from the wait for it has the exchange's."""

BASELINES = {"1gpu": "#D55E00", "1node": "#0072B2"}
"""What is measured against one GPU, and against one full node."""

PREDICTED = PARTS["other"]
"""What the band behind measured points is called; it is filled with GRID."""

PAGE = {
    "light": {"--one": "#c24e00", "--node": "#0072b2", "--other": PARTS["other"], "--unaccounted": PARTS["unaccounted"]},
    "dark": {"--one": "#f28a4b", "--node": "#56b4e9", "--other": "#8d969f", "--unaccounted": "#555e67"},
}
"""Variables of the page's style: the baselines as text and lines, and the greys among the parts."""


def page_css() -> str:
    """The rules that set them, light, dark and in print."""
    light, dark = ("; ".join(f"{name}: {colour}" for name, colour in PAGE[theme].items()) for theme in ("light", "dark"))
    chosen, unless = ":root[data-theme=dark]", ":root:not([data-theme=light])"
    dark_rules = f"@media (prefers-color-scheme: dark) {{ {unless} {{ {dark}; }} }}\n{chosen} {{ {dark}; }}"
    return f":root {{ {light}; }}\n{dark_rules}\n@media print {{ :root, {chosen}, {unless} {{ {light}; }} }}\n"


SIZES = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
"""From the smallest size to the largest, from cool to warm."""

STEPS = {"timed": "#0072B2", "warm-up": "#8a8a8a"}
"""Which steps a histogram is of."""

MEAN = "#D55E00"
"""Of the steps of a histogram."""

TRAINED = "#E69F00"
"""Gradients, beside the collectives."""

SLOWER, FASTER = "#D55E00", "#0072B2"
"""Than the median rank."""

COLLECTIVES = {
    "all_reduce": "#222222",
    "reduce_scatter": "#009E73",
    "all_gather": "#0072B2",
    "broadcast": "#D55E00",
    "send_recv": "#CC79A7",
}
"""Operation of a benchmark -> its colour; the one that training waits for is ink."""
