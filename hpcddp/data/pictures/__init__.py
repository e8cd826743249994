"""JPEGs in folders or tar files, cut and decoded, damaged ones replaced. Standard library, torch and a decoder, Python 3.10."""
