"""What a live Slurm says of its cluster: read, written as a profile, and compared with one."""
