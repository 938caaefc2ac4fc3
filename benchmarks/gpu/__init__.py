"""polyker on a CUDA device: a smoke run of three minutes, and a full one beside torch, torch.compile and CuPy.

The process that is started only prints and writes: whatever touches a GPU runs in a child process with a time limit (`pool.py`),
so that a wrong result, an error, a hang or a crash is one row.
"""
