"""Kernels for programs without Python: objects, C headers, libraries, WebAssembly modules."""
