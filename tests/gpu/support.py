"""What the tests of the CUDA back end need, or why they are skipped."""

import shutil

import pytest

HAS_COMPILER = any(map(shutil.which, ("g++", "clang++", "c++")))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler for the simulator (g++, clang++, c++)")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
