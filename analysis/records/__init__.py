"""Files of a study's folder as checked values and arrays."""
