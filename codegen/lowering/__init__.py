"""From a program and its proven schedule to a Kernel; the only part of the code generator that uses isl."""
