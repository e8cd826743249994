"""What tests of documents share."""

from tests.analysis.conftest import undrawn

__all__ = ["undrawn"]
