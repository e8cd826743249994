"""A study's runs for TensorBoard and Weights & Biases, by their own libraries, from the records, without a network."""
