"""The benchmark of a data set: how fast its samples are loaded where they lie, and what holds that back."""
