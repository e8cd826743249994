"""Preflight: what each node does in a few seconds, before the first run."""
