"""Loops of the Kernel IR as LLVM IR, one file a kind."""
