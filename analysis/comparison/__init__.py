"""Two studies point by point."""
