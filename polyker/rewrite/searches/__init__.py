"""Searches for the place of an extremum, which argmax and argmin expand to."""
