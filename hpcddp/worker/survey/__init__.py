"""The survey of a node: what no Slurm knows of it, read where every user may read it."""
