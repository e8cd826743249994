"""From a point's `data` to a source, or to a sentence saying what is missing and where."""

from __future__ import annotations

from hpcddp.catalog import dataset_facts
from hpcddp.data.source import Source, Split
from hpcddp.data.synthetic import SyntheticSource
from hpcddp.errors import HpcddpError
from hpcddp.point import Data


def open_source(data: Data, split: Split, root: str | None) -> Source:
    """One split of `data` from the folder `root`; raises HpcddpError or UsageError."""
    facts = dataset_facts(data)
    if facts is not None and data.name.startswith("synthetic-"):
        return SyntheticSource(facts, split)
    raise HpcddpError(f"data `{data.name}` cannot be read yet")
