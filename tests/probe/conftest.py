"""What tests of the probe share."""

from tests.analysis.conftest import undrawn

__all__ = ["undrawn"]
