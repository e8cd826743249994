"""bigMNIST: what a folder of it holds, and its three forms as sources. Standard library and torch, Python 3.10."""
