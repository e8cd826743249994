"""Someone else's table of results: what in it does not add up."""
