"""Copies of prepared data on another file system: which files they have, and how they are copied and checked."""
