"""What has finished becomes history the pipeline can learn from; the loop closes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from features.files import write_table
from features.job import COUNTERS
from features.schema import TRACE_SCHEMA, State
from pipeline.app import app
from pipeline.traces import TraceError, adapter_for, ingest, read_dataset
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide import processes
from scheduler.service.log.export import finished, keep_exporting
from scheduler.service.log.store.store import Store
from scheduler.service.settings import Settings
from tests.scheduler.service.desk import LIGHT, START, Desk, lasting
from tests.waiting import until


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    """A service with a past: ended, failed, cancelled before and after its start, refused."""
    outcomes = {"fails": lasting(40.0, state=State.FAILED), "short": lasting(5.0)}
    desk = Desk(
        store,
        tmp_path / "desk",
        outcomes,
        policy="lucid",
        partition=ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=30.0, max_gpus=4),
    )
    for name in ("fails", "short", "long"):
        desk.submit(name, name=f"train_{name}", owner="bob")
    desk.submit("huge", gpus=99)
    desk.submit("unwanted", gpus=4)
    desk.turn()
    desk.cancel("unwanted")
    desk.until_idle()
    desk.submit("stopped", profile=False, time_limit_s=3600.0)
    desk.turn()
    desk.turn(10.0)
    desk.cancel("stopped")
    desk.turn()
    desk.until_idle()
    desk.submit("runs")
    desk.turn()
    return desk


def test_rows_say_what_happened(desk: Desk) -> None:
    table = finished(desk.store)
    assert table.schema.equals(TRACE_SCHEMA)
    rows = {row["job_id"]: row for row in table.to_pylist()}
    assert set(rows) == {"fails", "short", "long", "unwanted", "stopped"}
    assert {j: row["state"] for j, row in rows.items()} == {
        "fails": "failed",
        "short": "completed",
        "long": "completed",
        "unwanted": "cancelled",
        "stopped": "cancelled",
    }
    long = rows["long"]
    assert (long["duration_s"], long["user"], long["name"]) == (60.0, "bob", "train_long")
    assert (long["end_time"] - long["start_time"]).total_seconds() == 60.0
    assert long["submit_time"].timestamp() == START
    assert long["gpu_util_pct"] == LIGHT.gpu_util_pct
    assert rows["short"]["duration_s"] == 5.0  # it ended while being profiled
    assert rows["unwanted"]["duration_s"] is None
    assert rows["unwanted"]["start_time"] is None
    assert rows["stopped"]["time_limit_s"] == 3600.0


def test_the_pipeline_takes_it(desk: Desk, tmp_path: Path) -> None:
    path, out = tmp_path / "finished.parquet", tmp_path / "dataset"
    table = finished(desk.store)
    write_table(path, table)
    assert adapter_for(path).name == "pellucid"
    summary = ingest(path, out)
    assert (summary.kept, summary.quarantined, summary.duplicates) == (5, {}, 0)
    back = read_dataset(out)
    columns = [name for name in TRACE_SCHEMA.names if name != "source_line"]
    assert back.select(columns).to_pylist() == table.select(columns).to_pylist()
    again = tmp_path / "again"
    assert ingest(path, again, format="pellucid").kept == 5
    assert [p.read_bytes() for p in sorted(again.glob("month=*/*"))] == [
        p.read_bytes() for p in sorted(out.glob("month=*/*"))
    ]


def test_a_file_of_a_release_that_counted_less_is_taken_too(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "older.parquet"
    table = finished(desk.store)
    write_table(path, table.drop_columns(list(COUNTERS)))
    assert adapter_for(path).name == "pellucid"
    assert ingest(path, tmp_path / "dataset").kept == 5
    assert read_dataset(tmp_path / "dataset").schema.equals(TRACE_SCHEMA)
    write_table(path, table.drop_columns(["gpu_mem_mib"]))
    with pytest.raises(TraceError):
        ingest(path, tmp_path / "none", format="pellucid")


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" + bytes(300) + b"PAR1", b"job_id,user\n"])
def test_another_file_is_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "finished.parquet"
    path.write_bytes(content)
    with pytest.raises(TraceError) as raised:
        ingest(path, tmp_path / "out", format="pellucid")
    assert "\n" not in str(raised.value)


class TestCommand:
    def test_it_writes_a_whole_file(self, desk: Desk, database: str, tmp_path: Path) -> None:
        out = tmp_path / "new" / "finished.parquet"
        done = CliRunner().invoke(app, ["export", str(out), "--database", database, "--json"])
        assert json.loads(done.output) == {"jobs": 5, "path": str(out)}
        assert pq.read_table(out).num_rows == 5
        assert [p.name for p in out.parent.iterdir()] == [out.name]

    def test_an_audit_of_the_command_line(self, desk: Desk, database: str, tmp_path: Path) -> None:
        given = ["audit", "--database", database, "--state-dir", str(tmp_path)]
        done = CliRunner().invoke(app, [*given, "--json"])
        assert done.exit_code == 0
        assert json.loads(done.output)["clean"]
        with desk.store.writing() as connection:
            connection.exec_driver_sql("UPDATE jobs SET gpus = 77 WHERE job_id = 'long'")
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 1
        assert "long.gpus is 77 in the database and 1 by the log" in done.output


def test_the_service_exports_by_itself(
    desk: Desk, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.service.log.export.POLL_S", 0.02)
    path, told = tmp_path / "export" / "finished.parquet", threading.Event()
    thread = threading.Thread(target=keep_exporting, args=(database, path, 3, told.wait))
    thread.start()
    until(path.exists, "the export", every_s=0.01)
    told.set()
    thread.join()
    assert pq.read_table(path).num_rows == 5


def test_a_row_that_is_no_history_costs_nobody_else_theirs(desk: Desk, tmp_path: Path) -> None:
    """A task that left Slurm's queue ended nobody knows how: each export died of it."""
    with desk.store.writing() as connection:
        connection.exec_driver_sql("UPDATE jobs SET state = NULL WHERE job_id = 'unwanted'")
        connection.exec_driver_sql("UPDATE jobs SET spec = '{}' WHERE job_id = 'long'")
    with capture_logs() as logs:
        write_table(tmp_path / "finished.parquet", finished(desk.store))
    assert set(pq.read_table(tmp_path / "finished.parquet")["job_id"].to_pylist()) == {
        "fails", "short", "stopped"
    }  # fmt: skip
    assert [(one["rows"], list(one["of"])) for one in logs] == [(1, ["long"])]


def test_maintenance_that_ends_by_itself_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "keep_pruning", lambda *_: None)
    settings = Settings(state_dir=tmp_path, database=f"sqlite:///{tmp_path}/db")
    with pytest.raises(RuntimeError, match="ended by itself"):
        processes.run_maintenance(settings, lambda: False)
