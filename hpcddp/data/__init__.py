"""What jobs train on: sources of images by index, and loaders that share them out among ranks.

Standard library and torch (torchvision only for JPEGs), Python 3.10.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcddp.data.loading import TrainLoader, eval_batches
    from hpcddp.data.opening import open_source
    from hpcddp.data.source import Batch, Source, Split

__all__ = ["Batch", "Source", "Split", "TrainLoader", "eval_batches", "open_source"]

_MODULES = {"TrainLoader": "loading", "eval_batches": "loading", "open_source": "opening"}


def __getattr__(name: str) -> Any:
    """The names above, imported when they are named: what fetches files needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"hpcddp.data.{_MODULES.get(name, 'source')}"), name)
