"""Communication: seen in training, cross-checked, and by itself."""
