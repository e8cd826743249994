"""Writes data sets to disk: files aside, then renamed, by one process at a time. Standard library and torch, Python 3.10."""
