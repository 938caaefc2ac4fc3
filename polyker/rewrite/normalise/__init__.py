"""The canonical form, the same for every target: reductions as statements that start at their identity, plain types."""
