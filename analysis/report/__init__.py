"""The page: index.html with its style and script, report.md and LaTeX tables."""
