"""Data of the demo: published operators and contractions, as facts."""
