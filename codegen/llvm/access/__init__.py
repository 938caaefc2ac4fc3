"""Loads and stores of the Kernel IR as LLVM IR: by vectors, strided, gathered, transposed."""
