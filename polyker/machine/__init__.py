"""Facts of processors and GPUs, as plain values."""
