"""The front end: text in Einstein notation, numpy einsum strings, and the builder, to Programs."""
