"""Runs the same task on many values, in this process, in several processes of this machine, or
on a Dask cluster.

The option `--where` chooses the place, so that the same command works on a laptop and on a cluster:

    here            one after the other, in this process
    local:4         four processes of this machine (joblib)
    dask:4          a Dask cluster of four worker processes, made for the occasion
    tcp://host:8786 a Dask scheduler that is already there
    slurm:4         a Dask cluster of four Slurm jobs (dask-jobqueue)

Partition, account, time limit and other properties of the Slurm jobs are configured as for Dask: in
`~/.config/dask/jobqueue.yaml`, or as `DASK_JOBQUEUE__SLURM__QUEUE=cpu` in the environment.

Anybody who can connect to a Dask scheduler can run anything as its user. So the clusters made here
accept only TLS with a new key, listen on one address and have no dashboard.

Results of long runs can be kept (`Keep`): every finished task writes a file, and when the command
is repeated, it reads the file instead of running the task again.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from features.codec import Json
from features.files import replacing
from features.folders import OpenFolder, private_folder, temporary_folder
from features.given import LARGEST, read_given
from pipeline.errors import UserError

T = TypeVar("T")
R = TypeVar("R")

HERE = "here"
WHERE_HELP = (
    "here (this process), local:N (N processes), dask:N or slurm:N (a Dask cluster of N processes "
    "or N Slurm jobs, made for this), or tcp://host:port (your Dask scheduler)."
)
_COUNTED = re.compile(r"(local|dask|slurm):([1-9]\d{0,3})")
# Of a Slurm job that is one worker, where Dask's own configuration does not say.
_SLURM_JOB = {"cores": 1, "processes": 1, "memory": "4GiB"}
# Dask's schedulers and workers always serve HTTP, in clear: here on loopback, and no page.
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_HTTP = "127.0.0.1:0"

Mapped = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


def place(where: str | None, workers: int) -> str:
    """Return the place in which tasks run: the one that `--where` names, otherwise this
    process, or as many processes of this machine as `--workers` says. Raise UserError if both
    options are given."""
    if where is None:
        return HERE if workers == 1 else f"local:{workers}"
    if workers != 1:
        raise UserError(f"--workers {workers} and --where {where}: give one of them")
    return where


@contextmanager
def mapped(where: str, keep: Keep | None = None) -> Iterator[Mapped]:
    """Yield a `map` that runs a task on each of several values, in the place `where`. Results come
    in the order of the values.

    Task and values must be picklable. Workers of a Dask cluster need this package and must see the
    same files. With `keep`, results of finished tasks are kept and reused. Raises UserError if the
    place cannot be used.
    """
    with _mapped(where) as over:
        yield over if keep is None else keep.around(over)


def workers_at(where: str) -> int:
    """Return how many tasks run at the same time in the place `where`. Raises UserError if the
    place cannot be used."""
    if where == HERE:
        return 1
    match = _counted(where)
    if match is not None:
        return int(match[2])
    with _client(where, None) as client:
        threads: dict[str, int] = client.nthreads()
    return max(1, sum(threads.values()))


def _counted(where: str) -> re.Match[str] | None:
    """Return a match of `where` with the kind of place and the number of workers; None if `where`
    is the address of a Dask scheduler. Raises UserError if it is neither."""
    match = _COUNTED.fullmatch(where)
    if match is None and not re.fullmatch(r"(tcp|tls|ucx)://\S+", where):
        raise UserError(f"--where {where}: use {WHERE_HELP}")
    return match


@contextmanager
def _mapped(where: str) -> Iterator[Mapped]:
    if where == HERE:
        yield _here
        return
    match = _counted(where)
    if match is not None and match[1] == "local":
        from joblib import Parallel
        from joblib.externals.loky import get_reusable_executor

        try:
            yield lambda task, values: _joblib(Parallel, int(match[2]), task, values)
        finally:  # idle ones would keep this process from its end for five minutes
            get_reusable_executor(reuse=True).shutdown(wait=True)
        return
    with _client(where, match) as client:
        yield lambda task, values: _dask(client, task, values)


def _here(task: Callable[[T], R], values: Sequence[T]) -> Iterator[R]:
    return map(task, values)


def _joblib(
    parallel: Any, workers: int, task: Callable[[T], R], values: Sequence[T]
) -> Iterator[R]:
    from joblib import delayed

    folder = os.getcwd()
    found: Iterator[R] = parallel(n_jobs=workers, return_as="generator")(
        delayed(_in_folder)(folder, task, value) for value in values
    )
    return found


def _in_folder(folder: str, task: Callable[[T], R], value: T) -> R:
    """Change to the folder `folder`, run the task on `value`, and return its result. joblib reuses
    processes that were started in other folders, in which relative paths would mean other files."""
    os.chdir(folder)
    return task(value)


@contextmanager
def _client(where: str, match: re.Match[str] | None) -> Iterator[Any]:
    try:
        import cryptography  # noqa: F401  (of the keys)
        from distributed import Client
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
        with slurm_cluster() as cluster, Client(cluster) as client:
            cluster.scale(jobs=workers)
            print(f"{workers} Slurm jobs are asked for (squeue --me)", file=sys.stderr)
            yield client
        return
    with local_cluster(workers) as cluster, Client(cluster) as client:
        yield client


@contextmanager
def local_cluster(workers: int) -> Iterator[Any]:
    """Yield a Dask cluster of processes of this machine, which listens on loopback only."""
    import dask.config
    from distributed import LocalCluster, Security

    with (
        dask.config.set(_NO_PAGES),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            security=Security.temporary(),
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": _HTTP},
        ) as cluster,
    ):
        yield cluster


@contextmanager
def slurm_cluster() -> Iterator[Any]:
    """Yield a Dask cluster with Slurm jobs as its workers. No job is requested yet.

    A job has one core and 4 GiB, unless Dask's configuration says otherwise. That can also set the
    network interface, and the shared folder for the key (by default the home folder). Raises
    UserError if dask-jobqueue or Slurm's commands are missing.
    """
    import shutil

    try:
        import dask.config
        from dask_jobqueue import SLURMCluster
        from distributed.utils import get_ip
    except ImportError:
        raise UserError(
            "--where slurm:N needs dask-jobqueue: pip install 'pellucid[cluster]'"
        ) from None
    if shutil.which("sbatch") is None:
        raise UserError("--where slurm:N: there is no sbatch here; run it on a login node")
    config: Json = dask.config.get("jobqueue.slurm", {})
    defaults = {key: value for key, value in _SLURM_JOB.items() if config.get(key) is None}
    scheduler = {**(config.get("scheduler-options") or {}), "dashboard": False}
    scheduler["dashboard_address"] = _HTTP
    if config.get("interface") is None and not scheduler.keys() & {"host", "interface"}:
        scheduler["host"] = get_ip()  # the one address that Dask would tell the workers
    with (
        dask.config.set(_NO_PAGES),
        _shared_key(config.get("shared-temp-directory")) as security,
        SLURMCluster(
            security=security,
            scheduler_options=scheduler,
            worker_extra_args=[
                *(config.get("worker-extra-args") or []),
                *("--no-dashboard", "--dashboard-address", _HTTP),
            ],
            **defaults,
        ) as cluster,
    ):
        yield cluster


@contextmanager
def _shared_key(folder: str | None) -> Iterator[Any]:
    """Yield Dask's security settings with a new key. Its files, which only their owner can read,
    are in a folder that all machines share.

    Raises UserError if other users could replace the key by their own.
    """
    from distributed import Security

    made = Security.temporary()
    base = os.path.expanduser(os.path.expandvars(folder or "~"))
    with temporary_folder(".pellucid-dask-", base) as private:
        try:
            private_folder(private)
        except OpenFolder as error:
            raise UserError(f"--where slurm:N: {error}") from None
        key, certificate = private / "key.pem", private / "certificate.pem"
        key.write_text(made.tls_worker_key)
        certificate.write_text(made.tls_worker_cert)
        roles = ("client", "scheduler", "worker")
        yield Security(
            require_encryption=True,
            tls_ca_file=str(certificate),
            **{f"tls_{role}_key": str(key) for role in roles},
            **{f"tls_{role}_cert": str(certificate) for role in roles},
        )


def _dask(client: Any, task: Callable[[T], R], values: Sequence[T]) -> Iterator[R]:
    """Run the task on the values on a Dask cluster, and yield the results in the order of
    `values`. A task that raises an error is run again, at most twice; then its error is raised
    here."""
    futures = client.map(task, values, pure=False, retries=2)
    try:
        for future in futures:
            yield future.result()
            future.release()
    finally:
        client.cancel(futures)


@dataclass(frozen=True)
class Keep:
    """A folder that keeps the results of finished tasks, to be reused after an interruption.

    Attributes:
        folder: created if missing. UserError is raised if others may write to it, since results
            are pickled.
        question: digest of everything that the results depend on (`question_of`). Files with
            another digest are neither read nor changed.
        label: returns a name for a value, unique among the values; it becomes part of the file's
            name.
    """

    folder: Path
    question: str
    label: Callable[[Any], str] = str

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = self.folder.stat()
        if held.st_uid != os.getuid() or held.st_mode & 0o022:
            raise UserError(
                f"{self.folder}: others can write there; keep results in a folder of your own"
            )

    def path(self, value: Any) -> Path:
        """Return the path of the file with the result for a value."""
        name = re.sub(r"[^\w.-]", "_", self.label(value))
        return self.folder / f"{name}-{self.question[:12]}.pickle"

    def once(self, name: str, make: Callable[[], R]) -> R:
        """Return the kept result with this name. If there is none, call `make`, keep its result and
        return it."""
        found: R = next(self.around(_here)(lambda _: make(), [name]))
        return found

    def around(self, over: Mapped) -> Mapped:
        """Return a map like `over` that runs only tasks without a kept result, and keeps the new
        results."""

        def over_missing(task: Callable[[Any], Any], values: Sequence[Any]) -> Iterator[Any]:
            paths = [self.path(value) for value in values]
            if len(set(paths)) < len(paths):
                raise ValueError("two tasks have one name")
            missing = [not path.exists() for path in paths]
            tasks = [
                (value, path)
                for value, path, wanted in zip(values, paths, missing, strict=True)
                if wanted
            ]
            made = iter(over(_Kept(task), tasks)) if tasks else iter(())
            for path, wanted in zip(paths, missing, strict=True):
                yield next(made) if wanted else _taken_up(path)

        return over_missing


@dataclass(frozen=True, slots=True)
class _Kept:
    """A callable that runs a task, writes the result to a file on the machine where it runs, and
    returns the result."""

    task: Callable[[Any], Any]

    def __call__(self, given: tuple[Any, Path]) -> Any:
        value, path = given
        result = self.task(value)
        with replacing(path, durable=True, mode=0o600) as partial, partial.open("wb") as file:
            pickle.dump(result, file, protocol=pickle.HIGHEST_PROTOCOL)
        return result


def _taken_up(path: Path) -> Any:
    try:
        return pickle.loads(read_given(path, LARGEST))
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); delete it, and it is made again"
        ) from None


def question_of(options: object, files: Iterable[Path] = ()) -> str:
    """Return a digest of everything that the results of a command depend on: its options (their
    text), and its input files or folders.

    Of a file, name, size and time of the last change are included, not its content. The version of
    this package is included, too.
    """
    seen = hashlib.sha256(f"{version('pellucid')}\n{options!r}\n".encode())
    for given in files:
        for path in [given, *(sorted(given.rglob("*")) if given.is_dir() else [])]:
            if path.is_file():
                held = path.stat()
                seen.update(f"{path.resolve()} {held.st_size} {held.st_mtime_ns}\n".encode())
    return seen.hexdigest()
