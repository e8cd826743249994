"""The commands: options, one call, one result. Data on stdout, remarks on stderr; heavy imports inside."""
