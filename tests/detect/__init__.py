"""hpcddp/detect: what Slurm's answers come to."""
