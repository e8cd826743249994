"""Copies of prepared data on a node's own disk: which files they have, and how they are copied and checked."""
