"""Trials of a store of threads: many processes, killed ones, racing ones, and faults of the file."""
