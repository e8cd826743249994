"""Batches of a source, shared out among ranks, loaded ahead and timed.

Standard library and torch, Python 3.10.
"""
