"""PolyBench 4.2 (Pouchet and Yuki; the algorithms, sizes and initial data are the suite's, the programs are written anew).

One module a group of programs; each is a `Case`. `python -m benchmarks polybench` measures them, `--check` compares results only.
"""

CLASSES = ("MINI", "SMALL", "MEDIUM", "LARGE")
