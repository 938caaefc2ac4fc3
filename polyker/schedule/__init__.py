"""Schedules: trees, the automatic one, steps, and the proof that they are legal."""
