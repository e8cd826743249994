from __future__ import annotations

import itertools
from collections.abc import Sequence

import pandas as pd
import pytest

from hpcddp.analysis.figures.axis import size_axis
from hpcddp.analysis.figures.style import DEFAULT, new_figure


@pytest.mark.parametrize("sizes", [range(1, 17), range(4, 52, 4), [2**k for k in range(11)], [1, 2, 3, 6, 12, 24, 48, 96]])
def test_labels_of_sizes_do_not_reach_each_other(sizes: Sequence[int]) -> None:
    """However many sizes there are; the largest has its label."""
    points = pd.DataFrame({"gpus": sizes, "nodes": sizes, "device": "cuda"})
    with new_figure(DEFAULT, 60.0) as (figure, (ax,)):
        size_axis(ax, points)
        figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    assert ax.get_xticklabels()[-1].get_text() == f"{sizes[-1]}\n{sizes[-1]}"
