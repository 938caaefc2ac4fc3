"""Build programs in Python: expressions with operators, tensors, statements; NumPy's functions on them."""
