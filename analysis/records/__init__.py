"""Records in: a study's folder as checked values, one Run per repetition."""
