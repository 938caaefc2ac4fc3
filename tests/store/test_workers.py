"""Workers of joblib, multiprocessing and dask: operators and kernels go to them, and share the disk cache."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

import polyker as pk
from polyker.store import disk
from tests.store.workers import called, compiled_by, made


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_compile_each_kernel_once(method: str, folder: Path) -> None:
    jobs = [(number, str(folder)) for number in range(40)]
    before = disk.counts.made.get("kernel", 0) if method == "fork" else 0
    with multiprocessing.get_context(method).Pool(4) as pool:
        found = pool.starmap(made, jobs, chunksize=1)
    assert [value for value, _, _ in found] == [2.0 * n + n % 10 for n in range(40)]
    assert compiled_by(found, before) == 10


def test_processes_of_joblib_compile_each_kernel_once(folder: Path) -> None:
    joblib = pytest.importorskip("joblib")
    found = joblib.Parallel(n_jobs=8)(joblib.delayed(made)(number, str(folder)) for number in range(80))
    assert [value for value, _, _ in found] == [2.0 * n + n % 10 for n in range(80)]
    assert compiled_by(found) == 10


def test_workers_of_dask_take_operators_and_kernels(folder: Path) -> None:
    distributed = pytest.importorskip("distributed")
    operator = pk.op("y[i] = x[i] * 3 + 0.5")
    kernel = operator.compile(pk.f64[5], threads=1)
    with (
        distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, processes=True) as cluster,
        distributed.Client(cluster) as client,
    ):
        for what in (operator, kernel):
            jobs = [client.submit(called, what, n, str(folder), pure=False) for n in range(24)]
            found = client.gather(jobs)
            assert [value for value, _, _ in found] == [3.0 * n + 0.5 for n in range(24)]
            assert compiled_by(found) <= 1


def test_dask_knows_an_operator_by_what_it_computes() -> None:
    tokenize = pytest.importorskip("dask.base").tokenize
    one, same, other = pk.op("y[i] = x[i] * 3"), pk.op("y[i] = x[i] * 3"), pk.op("y[i] = x[i] * 4")
    assert tokenize(one) == tokenize(same) != tokenize(other)
    for _ in range(70):
        one(np.arange(3.0))
    assert tokenize(one) == tokenize(same)
