"""One function per figure, DataFrame to matplotlib Figure, and the look they share."""

from hpcddp.analysis.figures.matplotlib_folder import use_writable_folder

use_writable_folder()  # before matplotlib is imported: everything that does is below
