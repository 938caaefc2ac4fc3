"""The schedule of a GPU: blocks, threads, shared memory, barriers."""
