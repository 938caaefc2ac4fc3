"""What the functions of the vector mathematics are built from: a small language, pairs of floats, tables."""
