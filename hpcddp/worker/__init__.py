"""What runs in each rank of a job. Standard library and torch only (torchvision where a model needs it), Python 3.10."""
