"""Named findings about a study, each with its evidence and advice; the closed list is in verdicts.py."""
