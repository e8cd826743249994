"""The pages of docs/studies/: their tables, figures and small results are made from data, and every number has its line."""
