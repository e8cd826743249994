"""How many runs of a point a median needs: more are added by `hpcddp submit --until-ci`, and called for in reports."""

FEWEST = 6
"""Runs below which the 95 % interval of a median is not known: the range of five holds it with 93.75 %."""
