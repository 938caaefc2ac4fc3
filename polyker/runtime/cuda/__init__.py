"""Calls of kernels on CUDA devices: contexts, modules, memory, streams, and arrays that lie there."""
