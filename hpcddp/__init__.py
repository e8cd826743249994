"""hpcddp: scaling studies of PyTorch DDP on Slurm clusters, from one sweep file to figures that can be trusted."""

__version__ = "0.1.0"
