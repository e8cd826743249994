"""One function per figure, DataFrame to matplotlib Figure, and the look they share."""
