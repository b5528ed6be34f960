"""The same tasks here, in processes of this machine, and on Dask; and rows in shards."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
from distributed import Client, Security
from numpy.typing import NDArray

from features.rows import Rows, training_rows
from models.training.duration import fit_at
from models.training.rolling import typical
from models.training.simulated import simulated_pairs
from pipeline.cluster import Keep, local_cluster, mapped, place, question_of, slurm_cluster
from pipeline.errors import UserError
from pipeline.sharded import Fit, stretches, train_sharded, write_stretch
from pipeline.traces import read_dataset
from pipeline.traces.synthetic.generate import default_config, write
from tests.commands import pellucid
from tests.waiting import until


def squared(value: int) -> int:
    return value * value


@pytest.mark.parametrize("where", ["here", "dask:2"])
def test_results_come_in_order_wherever_they_are_made(where: str) -> None:
    with mapped(where) as over:
        assert list(over(squared, list(range(7)))) == [n * n for n in range(7)]


def test_a_path_means_the_same_in_processes_that_were_started_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        with mapped("local:2") as over:
            assert set(over(_in, [Path(), Path()])) == {folder}


def _in(path: Path) -> Path:
    return path.resolve()


@pytest.mark.parametrize(
    "where", ["", "there", "local", "local:0", "local:-1", "dask:x", "http://a", "tcp://"]
)
def test_a_place_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(UserError, match="--where"), mapped(where):
        pass


def test_an_address_nobody_answers_at_is_said() -> None:
    with pytest.raises(UserError, match="no Dask scheduler answers"), mapped("tcp://127.0.0.1:9"):
        pass


def listened() -> set[tuple[str, int]]:
    """Addresses on which this process and its children listen."""
    here = psutil.Process()
    return {
        (found.laddr.ip, found.laddr.port)
        for process in (here, *here.children(recursive=True))
        for found in process.net_connections("inet")
        if found.status == psutil.CONN_LISTEN
    }


PAGES = ("", "status", "health", "metrics", "info/main/workers.html", "json/identity.json")


def assert_secured(opened: Iterable[tuple[str, int]], scheduler: str) -> None:
    """Each port wants our certificate, or is HTTP on loopback without a page."""
    assert scheduler.startswith("tls://")
    address = scheduler.removeprefix("tls://")
    for stranger, security in (("tcp", Security()), ("tls", Security.temporary())):
        with pytest.raises(OSError, match=r"closed|certificate does not match"):
            Client(f"{stranger}://{address}", timeout=1, security=security)
    pages = {at for at in opened if speaks_http(*at)}
    wants = set(opened) - pages
    assert address in {f"{host}:{port}" for host, port in wants}
    assert {host for host, _ in wants} == {address.rpartition(":")[0]}
    for at in wants:
        assert_wants_a_certificate(*at)
    for host, port in pages:
        assert host == "127.0.0.1"
        for page in PAGES:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://{host}:{port}/{page}", timeout=120)


def speaks_http(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=120) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            return plain.recv(5) == b"HTTP/"
        except ConnectionError:
            return False


def assert_wants_a_certificate(host: str, port: int) -> None:
    """TLS 1.3 says what it makes of the client's certificate after the handshake."""
    context = ssl._create_unverified_context()
    with (
        socket.create_connection((host, port), timeout=120) as plain,
        context.wrap_socket(plain) as encrypted,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
    ):
        encrypted.recv(1)


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that does nothing, in a folder that is all of PATH."""
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


def test_a_local_cluster_answers_nobody_else() -> None:
    before = listened()
    with local_cluster(2) as cluster, Client(cluster) as client:
        assert client.submit(squared, 3).result() == 9
        opened = listened() - before
        assert len(opened) >= 3
        assert_secured(opened, cluster.scheduler_address)
    assert listened() <= before


@pytest.mark.usefixtures("sbatch")
def test_a_slurm_cluster_answers_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    before = listened()
    with slurm_cluster() as cluster:
        assert_secured(listened() - before, cluster.scheduler_address)
        [private] = tmp_path.glob(".pellucid-dask-*")
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        script = cluster.job_script()
    assert f"--tls-key {private}/key.pem" in script
    assert "--no-dashboard --dashboard-address 127.0.0.1:0" in script
    assert not private.exists()


def logged(value: tuple[str, int]) -> int:
    """A square, with a line in a file for every time it is made."""
    with Path(value[0]).open("a") as file:
        file.write(f"{value[1]}\n")
    if value[1] == 13:
        raise RuntimeError("thirteen")
    return value[1] * value[1]


def test_what_is_kept_is_not_made_again_wherever_it_was_made(tmp_path: Path) -> None:
    log = tmp_path / "log"
    keep = Keep(tmp_path / "kept", question_of("squares"), label=lambda value: f"n={value[1]}")
    with pytest.raises(RuntimeError, match="thirteen"), mapped("local:2", keep) as over:
        list(over(logged, [(str(log), n) for n in (1, 2, 3, 13)]))
    made = []
    for where in ("here", "local:2"):
        with mapped(where, keep) as over:
            assert [n * n for n in range(6)] == list(
                over(logged, [(str(log), n) for n in range(6)])
            )
        made.append(log.read_text().split())
    assert sorted(set(made[0])) == sorted({"0", "1", "2", "3", "4", "5", "13"})
    assert made[0] == made[1], "nothing is made again"
    # what was under way when another failed may be
    assert all(made[0].count(n) <= 1 + (n in "123") for n in "012345")
    other = Keep(keep.folder, question_of("cubes"), label=lambda value: str(value[1]))
    with mapped("here", other) as over:
        assert list(over(logged, [(str(log), 2)])) == [4]
    assert len(log.read_text().split()) == len(made[1]) + 1, "another question is asked anew"


def test_a_kept_result_that_is_damaged_is_named(tmp_path: Path) -> None:
    keep = Keep(tmp_path, question_of("squares"))
    keep.path(3).write_bytes(b"\x80\x05half")
    with pytest.raises(UserError, match="delete it"), mapped("here", keep) as over:
        list(over(squared, [3]))


def test_results_are_not_read_where_others_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UserError, match="others can write"):
        Keep(tmp_path, "x")


def test_a_question_changes_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    before = question_of({"seed": 1}, [tmp_path])
    assert before == question_of({"seed": 1}, [tmp_path])
    assert before != question_of({"seed": 2}, [tmp_path])
    (tmp_path / "a.csv").write_text("12")
    assert before != question_of({"seed": 1}, [tmp_path])


def test_workers_is_short_for_processes_of_this_machine() -> None:
    assert place(None, 1) == "here"
    assert place(None, 4) == "local:4"
    assert place("slurm:8", 1) == "slurm:8"
    with pytest.raises(UserError, match="give one of them"):
        place("dask:2", 2)


COST = ("wall_s", "cpu_s", "peak_rss_mib")


def figures(told: dict[str, Any]) -> Any:
    """A comparison without what it cost."""
    rows = [
        {name: value for name, value in row.items() if not name.startswith(COST)}
        for row in told["policies"]
    ]
    return rows, told["paired"]


def test_a_sweep_killed_halfway_goes_on_where_it_stopped(tmp_path: Path, small_trace: Path) -> None:
    command = [
        sys.executable, "-c", "from pipeline.cli import main; main()", "compare",
        "--trace", str(small_trace), "--cluster", "pipeline/worlds/clusters/small.yaml",
        "--policies", "fifo,sjf,srtf", "--seeds", "2", "--durations", "gpus", "--json",
    ]  # fmt: skip
    kept = tmp_path / "kept"
    run = subprocess.Popen([*command, "--keep", str(kept)], stdout=subprocess.DEVNULL)

    def three_are_kept() -> bool:
        assert run.poll() is None, "it ended before it could be killed"
        return len(list(kept.glob("*.pickle"))) >= 3

    until(three_are_kept, "three runs to be kept", every_s=0.005)
    run.kill()
    run.wait()
    finished = {path: path.stat().st_mtime_ns for path in kept.glob("*.pickle")}
    runs = 12  # of 3 policies, 2 seeds and both loops
    assert 3 <= len(finished) < runs
    (kept / ".fifo-9.pickle.1.partial").write_bytes(b"half a result")
    done = subprocess.run([*command, "--keep", str(kept)], stdout=subprocess.PIPE, check=True)
    assert len(list(kept.glob("[!.]*.pickle"))) == runs
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "none was made twice"
    whole = pellucid(*command[3:])
    assert figures(json.loads(done.stdout)) == figures(json.loads(whole.stdout))


def test_a_slurm_job_is_a_worker_of_one_core(sbatch: Path) -> None:
    with slurm_cluster() as cluster:
        script = cluster.job_script()
    assert "#SBATCH -n 1\n" in script
    assert "#SBATCH --cpus-per-task=1\n" in script
    assert "#SBATCH --mem=4G\n" in script
    assert f"{sys.executable} -m distributed.cli.dask_worker tls://" in script
    said = {"jobqueue.slurm.queue": "cpu", "jobqueue.slurm.cores": 4}
    with dask.config.set(said), slurm_cluster() as cluster:
        script = cluster.job_script()
    assert "#SBATCH -p cpu\n" in script
    assert "#SBATCH --cpus-per-task=4\n" in script
    sbatch.unlink()
    with pytest.raises(UserError, match="no sbatch here"):
        slurm_cluster().__enter__()


@pytest.mark.usefixtures("sbatch")
def test_where_others_could_put_a_key_of_theirs_no_cluster_is_made(tmp_path: Path) -> None:
    """Whoever may rename in the shared folder had the scheduler begin with their key."""
    import dask_jobqueue  # noqa: F401  its defaults come with it: not within what is set below

    shared = tmp_path / "shared"
    shared.mkdir()
    said = {"jobqueue.slurm.shared-temp-directory": str(shared)}
    shared.chmod(0o777)
    with (
        dask.config.set(said),
        pytest.raises(UserError, match=r"--where slurm:N: .*shared can be written by everybody"),
    ):
        slurm_cluster().__enter__()
    assert list(shared.iterdir()) == []
    shared.chmod(0o1777)
    with dask.config.set(said), slurm_cluster():
        assert len(list(shared.iterdir())) == 1


FAMILIES = ("size", "survival", "burst")
SIZES = {"jobs": 1_200, "days": 20, "users": 30}


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two months."""
    folder = tmp_path_factory.mktemp("months") / "trace"
    write(replace(default_config("small", 0), **SIZES, bursts_per_week=1.0), folder)
    assert len(list(folder.glob("month=*"))) == 2
    return folder


def times(trace: Path) -> NDArray[np.float64]:
    """When its jobs were submitted, seconds."""
    seconds: NDArray[np.float64] = training_rows(read_dataset(trace), families=("size",)).time
    return seconds


def test_shards_hold_the_rows_of_the_whole(months: Path, tmp_path: Path) -> None:
    """Where all that came before is replayed."""
    workers = 3
    whole = training_rows(read_dataset(months), families=FAMILIES)
    cut = float(np.quantile(whole.time, 0.8))
    fit = Fit(cut=cut, families=FAMILIES, preset="fast", seed=0)
    work = stretches(months, tmp_path, times(months), fit, workers, least_rows=100)
    written = [write_stretch(one) for one in work]
    assert len(work) == workers
    shards = [Rows.from_table(pq.read_table(f)) for one in written for f in one.shards]
    assert len(shards) == workers
    seen = whole.known_by(cut)
    assert 0 < np.isnan(seen.y).sum() < len(seen) / 10
    np.testing.assert_array_equal(np.concatenate([rows.y for rows in shards]), seen.y)
    pd.testing.assert_frame_equal(pd.concat([rows.X for rows in shards], ignore_index=True), seen.X)
    assert np.concatenate([rows.job_id for rows in shards]).tolist() == seen.job_id.tolist()
    assert max(map(len, shards)) <= 1.1 * len(seen) / workers
    tested = [Rows.from_table(pq.read_table(one.test)) for one in written]
    after = whole.where((whole.time >= cut) & np.isfinite(whole.y))
    assert [len(rows) for rows in tested] == [0] * (workers - 1) + [len(after)]
    pd.testing.assert_frame_equal(tested[-1].X, after.X)


def test_what_is_replayed_before_a_stretch_is_nearly_all_it_needs(
    months: Path, tmp_path: Path
) -> None:
    whole = training_rows(read_dataset(months), families=FAMILIES)
    fit = Fit(cut=float(whole.time.max()) + 1, families=FAMILIES, preset="fast", seed=0)

    def missed(warm_jobs: int) -> float:
        _, last = stretches(
            months, tmp_path, times(months), fit, 2, warm_jobs=warm_jobs, least_rows=100
        )
        [file] = write_stretch(last).shards
        rows = Rows.from_table(pq.read_table(file))
        same = whole.where(np.isin(whole.job_id, rows.job_id))
        return float(np.abs(typical(rows.X) - typical(same.X)).mean())

    assert missed(0) > 2 * missed(200) > 0


def test_every_worker_has_as_many_shards_and_few_jobs_are_not_divided() -> None:
    fit = Fit(cut=1e6, families=FAMILIES, preset="fast", seed=0)

    def cuts(jobs: int, workers: int) -> tuple[int, int]:
        work = stretches(Path(), Path(), np.linspace(0, 1e6 - 1, jobs), fit, workers)
        assert [one.since for one in work[1:]] == [one.until for one in work[:-1]]
        return len(work), work[0].shard_rows

    assert cuts(1_000_000, 2) == (2, 100_000)
    assert cuts(300_000, 2) == (2, 75_000)
    assert cuts(30_000, 8) == (1, 30_000)
    assert cuts(90_000, 8) == (4, 22_500)
    with pytest.raises(UserError, match="no job to learn from"):
        cuts(0, 2)


def test_trained_apart_it_is_nearly_the_same_model(months: Path, tmp_path: Path) -> None:
    """Blended with the histories as that of one process, wherever it is fitted."""
    whole = training_rows(read_dataset(months), families=FAMILIES)
    cut = float(np.quantile(whole.time, 0.8))
    single = fit_at(whole, cut, seed=0, preset="fast")
    fit = Fit(cut=cut, families=FAMILIES, preset="fast", seed=0)
    bundle, told = train_sharded(
        months, tmp_path, times(months), simulated_pairs(0), fit, where="local:2"
    )
    assert told["weight"] == single.metadata["weight"]
    assert min(told["cpu_s"], told["features_cpu_s"]) > 0
    assert not any("cpu" in name for name in bundle.metadata["duration"]), "it is the same anywhere"
    ahead = whole.where((whole.time >= cut) & np.isfinite(whole.y))
    off = bundle.duration.score_batch(ahead.X) - single.model.score_batch(ahead.X)
    assert float(np.abs(off).mean()) < 0.03


def test_processes_of_this_machine_end_with_their_work() -> None:
    """Idle ones kept whoever asked from its own end for five minutes."""
    before = set(psutil.Process().children(recursive=True))
    with mapped("local:2") as over:
        assert list(over(squared, [1, 2, 3])) == [1, 4, 9]
    tracker = ("resource_tracker", "semaphore_tracker")
    left = [
        one
        for one in set(psutil.Process().children(recursive=True)) - before
        if not any(name in " ".join(one.cmdline()) for name in tracker)
    ]
    assert left == []
