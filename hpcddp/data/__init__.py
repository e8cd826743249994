"""What jobs train on: sources of images by index, and loaders that share them out among ranks.

Standard library and torch (torchvision only for JPEGs), Python 3.10.
"""

from hpcddp.data.loading import TrainLoader, eval_batches
from hpcddp.data.opening import open_source
from hpcddp.data.source import Batch, Source, Split

__all__ = ["Batch", "Source", "Split", "TrainLoader", "eval_batches", "open_source"]
