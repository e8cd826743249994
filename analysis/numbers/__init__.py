"""Runs to numbers: formulas within a run, intervals, scaling, laws, costs, as values and tables; nothing is drawn here."""
