"""The command line: `polyker run`, `show`, `demo`, `doctor` and the others."""
