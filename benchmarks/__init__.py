"""Measurements of polyker beside other libraries: `python -m benchmarks cpu`. Not part of the package."""
