"""Clocks, the marks of a step, and the files they end in."""
