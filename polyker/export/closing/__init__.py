"""Objects that need nothing from a C library: their undefined symbols, and the functions that are put in for them."""
