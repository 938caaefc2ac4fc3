"""Tensors of other libraries by the C exchange API of DLPack."""
