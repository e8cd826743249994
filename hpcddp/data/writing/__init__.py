"""What writes data sets to disk: each file beside its place and renamed, one process at a time in a folder.

Standard library and torch, Python 3.10.
"""
