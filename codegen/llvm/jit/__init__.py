"""LLVM IR to machine code in this process, the entry for calls, and the pool of threads."""
