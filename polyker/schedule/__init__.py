"""Schedules: in which order, on which threads and in which registers the instances of statements run."""
