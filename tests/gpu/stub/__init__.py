"""A stand-in for the driver's library, `libcuda.so.1`, for tests of the run time: see build.py and control.py."""
