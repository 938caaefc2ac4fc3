"""Random valid programs, run and compared with independent oracles; see `python -m tests.fuzz --help`."""
