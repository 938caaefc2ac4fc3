"""The run time: arrays of any library, calls of compiled kernels, the cache in memory."""
