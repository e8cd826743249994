"""The cluster profiles that come with hpcddp: one YAML file per machine, every fact with its source beside it."""
