"""A study's runs for TensorBoard, Weights & Biases and MLflow, by their own libraries, from the records, without a network."""
