"""Where many like tasks run: in this process, in several on this machine, or on a Dask cluster.

One way of asking for all three, so that the same command works on a laptop and on a cluster:

    here            one after the other, in this process
    local:4         four processes of this machine (joblib)
    dask:4          a Dask cluster of four worker processes, made for the occasion
    tcp://host:8786 a Dask scheduler that is already there
    slurm:4         a Dask cluster of four Slurm jobs (dask-jobqueue; see its own configuration)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pipeline.errors import UserError

T = TypeVar("T")
R = TypeVar("R")

HERE = "here"
WHERE_HELP = "here, local:N, dask:N, slurm:N, or the address of a Dask scheduler (tcp://host:port)."
_COUNTED = re.compile(r"(local|dask|slurm):([1-9]\d{0,3})")

Mapped = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


@contextmanager
def mapped(where: str) -> Iterator[Mapped]:
    """`map` over tasks, carried out where asked; results come in the order of the tasks.

    A task is a picklable function and value. With a Dask cluster the workers need this package
    and see the same files. Raises UserError for a place that cannot be used.
    """
    if where == HERE:
        yield _here
        return
    match = _COUNTED.fullmatch(where)
    if match is not None and match[1] == "local":
        from joblib import Parallel

        yield lambda task, values: _joblib(Parallel, int(match[2]), task, values)
        return
    if match is None and not re.fullmatch(r"(tcp|tls|ucx)://\S+", where):
        raise UserError(f"--where {where}: use {WHERE_HELP}")
    with _client(where, match) as client:
        yield lambda task, values: _dask(client, task, values)


def _here(task: Callable[[T], R], values: Sequence[T]) -> Iterator[R]:
    return map(task, values)


def _joblib(
    parallel: Any, workers: int, task: Callable[[T], R], values: Sequence[T]
) -> Iterator[R]:
    from joblib import delayed

    found: Iterator[R] = parallel(n_jobs=workers, return_as="generator")(
        delayed(task)(value) for value in values
    )
    return found


@contextmanager
def _client(where: str, match: re.Match[str] | None) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UserError(
            f"--where {where}: needs Dask; install the extra: pip install 'pellucid[cluster]'"
        ) from None
    if match is None:
        try:
            client = Client(where, timeout=5)
        except OSError:
            raise UserError(f"--where {where}: no Dask scheduler answers there") from None
        with client:
            yield client
        return
    kind, workers = match[1], int(match[2])
    if kind == "slurm":
        from dask_jobqueue import SLURMCluster

        with SLURMCluster() as cluster, Client(cluster) as client:
            cluster.scale(jobs=workers)
            yield client
        return
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _dask(client: Any, task: Callable[[T], R], values: Sequence[T]) -> Iterator[R]:
    """Results in order. A worker that dies is replaced and its tasks run again elsewhere."""
    futures = client.map(task, values, pure=False, retries=2)
    try:
        for future in futures:
            yield future.result()
            future.release()
    finally:
        client.cancel(futures)
