"""The compiler as one list of passes: what runs, in which order, why, and how long it took."""
