"""The sweep files that come with hpcddp. The runs of NAME.yaml land in NAME/ beside it; no package carries them."""
