"""What a node and its GPUs do beside the ranks, and what a run took and achieved."""
