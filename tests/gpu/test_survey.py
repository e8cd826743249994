"""What a survey learns of a node with GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hpcddp.core.schema import encode
from hpcddp.worker.survey import survey_node
from tests.gpu import ranks
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches


@touches("hpcddp/worker/survey.py", stand_in="there is no driver, and so no matrix of links")
def test_a_node_is_surveyed(tmp_path: Path) -> None:
    """Its GPUs, what torch was built for, versions, and what joins the GPUs."""
    (found,) = ranks.values(tmp_path, 1, surveyed)
    assert len(found["node"]["gpus"]) >= gpu_count()
    assert found["arch_list"]
    assert found["versions"].get("nccl") or found["versions"]["rccl"]
    if is_real() and torch.version.hip is None:
        assert len([name for name in found["topology"] if name.startswith("GPU")]) >= gpu_count()


def surveyed() -> dict[str, Any]:
    plain: dict[str, Any] = encode(survey_node("here"))
    return plain
