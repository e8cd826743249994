"""What a GPU test says of itself."""

from __future__ import annotations

import pytest

from tests.gpu.device import gpu_count


def touches(*files: str, stand_in: str) -> pytest.MarkDecorator:
    """Marks a test of how these files of hpcddp use CUDA; `stand_in`: what the test cannot find out without a GPU."""
    return pytest.mark.gpu(files=files, stand_in=stand_in)


def need_gpus(count: int) -> None:
    """Skips the test where there are fewer."""
    if gpu_count() < count:
        pytest.skip(f"needs {count} GPUs, and there is {gpu_count()}")
