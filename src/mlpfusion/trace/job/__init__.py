"""The traces of one job: which files they are, whose rank each is, how they compare."""
