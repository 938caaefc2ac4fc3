"""Kernels as CUDA C, and from there to machine code of a GPU or of the simulator."""
