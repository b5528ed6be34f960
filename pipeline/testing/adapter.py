"""The tests that every trace adapter must pass. A subclass needs a few lines; see
``pipeline.testing``."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.codec import Json
from features.schema import TRACE_SCHEMA
from pipeline.testing.samples import Sample, samples
from pipeline.traces import ADAPTERS, TraceError, adapter_for, delimited, ingest, read_dataset, text
from pipeline.traces.base import MAX_TEXT, Adapter, Batch
from pipeline.traces.registry import FORMATS, adapter_class

GARBAGE = bytes(range(256))


class AdapterConformance:
    """The tests that every adapter must pass (the rules of ``pipeline.traces.base.Adapter``).

    Class attributes to set:
        format: name of the adapter, or `module:Class` of one that is not part of Pellucid.
        ids: whether the format has job ids.
        starts: whether it has starts and ends.
        ends: whether it has ends as a field of its own, which may be before the start.
        recorded: whether it has a duration as a field of its own.
        counts: whether the number of GPUs is a number in its text.
        clock: whether its times are dates, not offsets.
        delimiters: bytes that separate its columns, and a byte that replaces them in a test and
            separates none.
        reasons: reasons for which a number of GPUs is refused, if they differ from the usual ones.
    """

    format: ClassVar[str]
    ids: ClassVar[bool] = True
    starts: ClassVar[bool] = True
    ends: ClassVar[bool] = True
    recorded: ClassVar[bool] = True
    counts: ClassVar[bool] = True
    clock: ClassVar[bool] = True
    delimiters: ClassVar[tuple[bytes, bytes]] = (b",|", b";")
    reasons: ClassVar[Mapping[str, str]] = {}

    def written(self, folder: Path, jobs: Sequence[Sample]) -> Path:
        """Write `jobs` in this format into a folder, and return the path to ingest. A subclass
        defines it."""
        raise NotImplementedError("say how jobs are written in this format")

    # -- what is read ------------------------------------------------------------------------

    def test_jobs_come_back(self, tmp_path: Path) -> None:
        jobs = samples()
        table, summary = self.ingested(tmp_path, jobs)
        assert summary["kept"] == len(jobs)
        assert not summary["quarantined"]
        assert table.schema.equals(TRACE_SCHEMA)
        assert table["gpus"].to_pylist() == [job.gpus for job in jobs]
        assert _times(table, "submit_time") == [job.submit for job in jobs]
        assert table["duration_s"].to_pylist() == [job.duration for job in jobs]
        if self.ids:
            assert table["job_id"].to_pylist() == [job.job_id for job in jobs]
        if self.starts:
            assert _times(table, "start_time") == [job.start for job in jobs]
            assert _times(table, "end_time") == [job.end for job in jobs]
        assert summary["first_submit"] == jobs[0].submit.isoformat().replace("+00:00", "Z")
        assert summary["unsorted"] == 0
        assert summary["missing_starts"] == (0 if self.starts else len(jobs))

    def test_auto_recognises_it_alone(self, tmp_path: Path) -> None:
        source = self.written(tmp_path, samples())
        if self.asked == "auto":
            assert adapter_for(source).name == self.format
        others = {a.name: a().sniff(source) for a in ADAPTERS if a is not type(self.adapter)}
        own = self.adapter.sniff(source)
        assert own > max(others.values()) + 0.1, others

    def test_dataset_says_where_it_comes_from(self, tmp_path: Path) -> None:
        table, summary = self.ingested(tmp_path, samples())
        out = tmp_path / "out"
        assert {path.name for path in out.iterdir()} == {
            *{f"month={month}" for month in _months(table)},
            *("provenance.json", "summary.json", "quarantine.parquet"),
        }
        adapter = self.adapter
        provenance = _json(out / "provenance.json")
        assert provenance["adapter"] == adapter.name
        assert provenance["adapter_version"] == adapter.version
        assert provenance["kept"] == summary["kept"] == len(table)
        source = self.written(tmp_path, samples())
        sizes = {path.name: path.stat().st_size for path in adapter.files(source)}
        assert {file["name"]: file["size"] for file in provenance["files"]} == sizes
        assert (provenance["timezone"] is None) == (adapter.timezone is None)

    def test_order_does_not_matter(self, tmp_path: Path) -> None:
        jobs = samples()
        shuffled = random.Random(1).sample(jobs, len(jobs))
        table, summary = self.ingested(tmp_path, shuffled)
        assert _times(table, "submit_time") == [job.submit for job in jobs]
        before = [max(job.submit for job in shuffled[: i + 1]) for i in range(len(jobs))]
        late = sum(job.submit < latest for job, latest in zip(shuffled, before, strict=True))
        assert summary["unsorted"] == late > 0

    # -- what is refused ---------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("gpus", "reason"),
        [
            ("0", "no_gpu"),
            ("1000000000", "implausible_gpus"),
            ("NaN", "missing_gpus"),
            ("-2", "bad_gpus"),
            ("inf", "implausible_gpus"),
        ],
    )
    def test_wrong_gpu_count(self, tmp_path: Path, gpus: str, reason: str) -> None:
        if not self.counts and gpus != "0":
            pytest.skip("the format lists GPUs instead of counting them")
        expected = self.reasons.get(gpus, reason)
        self.check_refused(tmp_path, lambda job: job.with_raw(gpus=gpus), expected)

    @pytest.mark.parametrize("value", ["no-time", "2023-02-30T00:00:00", "12:00"])
    def test_wrong_submission(self, tmp_path: Path, value: str) -> None:
        self.check_refused(tmp_path, lambda job: job.with_raw(submit=value), "bad_submit_time")

    def test_no_submission(self, tmp_path: Path) -> None:
        change = self.nothing("submit")
        self.check_refused(tmp_path, change, "missing_submit_time")

    def test_forty_years_old(self, tmp_path: Path) -> None:
        def change(job: Sample) -> Sample:
            ago = timedelta(days=40 * 365)
            return replace(job, submit=job.submit - ago, start=job.start - ago, end=job.end - ago)

        self.check_refused(tmp_path, change, "implausible_submit_time")

    def test_end_before_start(self, tmp_path: Path) -> None:
        def change(job: Sample) -> Sample:
            return replace(job, end=job.start - timedelta(seconds=5))

        if not (self.starts and self.ends):
            pytest.skip("the format gives no end that could be wrong")
        reason = self.check_refused(tmp_path, change)
        assert reason == "end_before_start"

    def test_start_before_submission(self, tmp_path: Path) -> None:
        def change(job: Sample) -> Sample:
            return replace(job, start=job.submit - timedelta(seconds=5))

        if not self.starts:
            pytest.skip("the format has no starts")
        self.check_refused(tmp_path, change, "start_before_submit")

    def test_negative_duration(self, tmp_path: Path) -> None:
        if not self.recorded:
            pytest.skip("the format has no duration of its own")
        reason = self.check_refused(tmp_path, lambda job: job.with_raw(duration="-5"))
        assert reason in ("negative_duration", "bad_recorded_duration_s")

    def test_other_zone(self, tmp_path: Path) -> None:
        if not self.clock:
            pytest.skip("times are offsets")
        reason = self.check_refused(
            tmp_path, lambda job: job.with_raw(submit="2023-03-31T11:00:00-07:00")
        )
        assert reason in ("bad_submit_time", "mixed_zones")

    def test_duplicates(self, tmp_path: Path) -> None:
        jobs = samples()
        table, summary = self.ingested(tmp_path, [*jobs, jobs[3], jobs[5], jobs[3]])
        assert summary["kept"] == len(table) == len(jobs)
        assert summary["duplicates"] == 3
        assert summary["repeated_job_ids"] == 0
        quarantine = pq.read_table(tmp_path / "out" / "quarantine.parquet")
        assert quarantine["reason"].to_pylist() == ["duplicate"] * 3

    def test_garbage_line(self, tmp_path: Path) -> None:
        source = self.written(tmp_path, samples())
        for file in self.adapter.files(source)[-1:]:
            file.write_bytes(_with_garbage(file.read_bytes()))
        summary = ingest(source, tmp_path / "out", format=self.format)
        assert summary.kept >= len(samples()) - 2
        assert sum(summary.quarantined.values()) >= 1

    # -- what is no trace --------------------------------------------------------------------

    @pytest.mark.parametrize(
        "content",
        [b"", b"\n", GARBAGE * 500, b"a" * 5000, b"\0" * 100],
        ids=["empty", "blank", "binary", "letters", "zeros"],
    )
    def test_not_this_format(self, tmp_path: Path, content: bytes) -> None:
        source = self.written(tmp_path, samples())
        for file in self.adapter.files(source):
            file.write_bytes(content)
        self.check_raises(source, tmp_path / "out")

    def test_no_such_file(self, tmp_path: Path) -> None:
        self.check_raises(tmp_path / "nothing.csv", tmp_path / "out")

    def test_wrong_delimiter(self, tmp_path: Path) -> None:
        source = self.written(tmp_path, samples())
        for file in self.adapter.files(source):
            content = file.read_bytes()
            right, wrong = self.delimiters
            for delimiter in right:
                content = content.replace(bytes([delimiter]), wrong)
            file.write_bytes(content)
        self.check_raises(source, tmp_path / "out")

    def test_failure_leaves_the_old_dataset(self, tmp_path: Path) -> None:
        table, _ = self.ingested(tmp_path, samples())
        (tmp_path / "bad").mkdir()
        source = self.written(tmp_path / "bad", samples())
        for file in self.adapter.files(source):
            file.write_bytes(b"")
        self.check_raises(source, tmp_path / "out")
        assert read_dataset(tmp_path / "out").equals(table)

    # -- how it is read makes no difference --------------------------------------------------

    def test_cut_anywhere(self, tmp_path: Path) -> None:
        """Check a truncated file: the cut loses no row but the one that it goes through. That row
        may also be kept, if what is left of it is valid."""
        source = self.written(tmp_path, samples())
        file = self.adapter.files(source)[-1]
        content = file.read_bytes()
        kept = []
        for cut in range(0, len(content), max(1, len(content) // 60)):
            file.write_bytes(content[:cut])
            kept.append(self.check_account(source))
        torn = [max(kept[: n + 1]) - rows for n, rows in enumerate(kept)]
        assert max(torn) <= 1, f"a longer file lost whole rows; rows kept, by its length: {kept}"
        assert kept[-1] >= len(samples()) - 1

    def test_line_ends_and_marks(self, tmp_path: Path) -> None:
        table, _ = self.ingested(tmp_path, samples())
        source = self.written(tmp_path, samples())
        for file in self.adapter.files(source):
            content = file.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n")
            file.write_bytes(b"\xef\xbb\xbf" + content)
        ingest(source, tmp_path / "again", format=self.asked)
        assert read_dataset(tmp_path / "again").equals(table)

    def test_blocks_do_not_matter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs = [*samples(), samples()[2], samples()[4].with_raw(gpus="0")]
        whole, summary = self.ingested(tmp_path, jobs)
        monkeypatch.setattr(text, "BLOCK_BYTES", 300)
        monkeypatch.setattr("pipeline.traces.elements.CHUNK_BYTES", 100)
        monkeypatch.setattr("pipeline.traces.philly.BATCH_JOBS", 3)
        monkeypatch.setattr("pipeline.traces.dataset.GROUP_ROWS", 2)
        monkeypatch.setattr("pipeline.traces.dataset.HELD_ROWS", 3)
        monkeypatch.setattr("pipeline.traces.dataset.OPEN_FILES", 1)
        pieces, again = self.ingested(tmp_path, jobs)
        assert again == summary
        assert pieces.equals(whole)

    def test_fast_path_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole, summary = self.ingested(tmp_path, samples())
        monkeypatch.setattr(delimited, "_parse_typed", lambda data, layout: None)
        careful, again = self.ingested(tmp_path, samples())
        assert again == summary
        assert careful.equals(whole)

    # -- fuzzing -----------------------------------------------------------------------------

    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(data=st.data())
    def test_mutated(self, data: st.DataObject) -> None:
        """Check a file with bytes changed at random: all rows are accounted for, or an error of one
        line says why not."""
        folder = Path(tempfile.mkdtemp())
        try:
            source = self.written(folder, samples(6))
            files = self.adapter.files(source)
            file = data.draw(st.sampled_from(files))
            content = bytearray(file.read_bytes())
            for _ in range(data.draw(st.integers(1, 6))):
                _mutate(content, data)
            file.write_bytes(bytes(content))
            self.check_account(source)
        finally:
            shutil.rmtree(folder)

    # -- helpers -----------------------------------------------------------------------------

    @property
    def adapter(self) -> Adapter:
        return adapter_class(self.format)()

    @property
    def asked(self) -> str:
        """Return the value of `--format` for this format: "auto" if it is recognised by itself."""
        return "auto" if self.format in FORMATS else self.format

    def ingested(self, folder: Path, jobs: Sequence[Sample]) -> tuple[pa.Table, Json]:
        out = folder / "out"
        summary = asdict(ingest(self.written(folder, jobs), out, format=self.asked))
        assert summary == _json(out / "summary.json")
        assert summary["rows_in"] == summary["kept"] + summary["duplicates"] + sum(
            [*summary["quarantined"].values(), *summary["skipped"].values()]
        )
        table = read_dataset(out)
        check_table(table)
        assert len(table) == summary["kept"]
        return table, summary

    def nothing(self, name: str) -> Callable[[Sample], Sample]:
        return lambda job: job.with_raw(**{name: "NaN" if not self.clock else ""})

    def check_refused(
        self, folder: Path, change: Callable[[Sample], Sample], reason: str | None = None
    ) -> str:
        """Write samples, one of them changed by `change` so that it is wrong, and check that
        only this row is refused, with its line and text, for `reason` if that is given. Return
        the reason for which it was refused."""
        jobs = samples()
        good = [job for i, job in enumerate(jobs) if i != 4]
        table, summary = self.ingested(folder, [*jobs[:4], change(jobs[4]), *jobs[5:]])
        assert _times(table, "submit_time") == [job.submit for job in good]
        quarantine = pq.read_table(folder / "out" / "quarantine.parquet").to_pylist()
        assert Counter(row["reason"] for row in quarantine) == summary["quarantined"]
        jobs_file = self.adapter.files(self.written(folder, jobs))[-1]
        quarantine = [row for row in quarantine if row["source"] == jobs_file.name]
        [found] = [row["reason"] for row in quarantine]
        assert reason in (None, found)
        lines = sorted([*table["source_line"].to_pylist(), quarantine[0]["source_line"]])
        assert lines == list(range(lines[0], lines[0] + len(jobs)))
        assert quarantine[0]["source_line"] == lines[4]
        assert quarantine[0]["text"]
        assert len(quarantine[0]["text"]) <= MAX_TEXT
        return str(found)

    def check_account(self, source: Path) -> int:
        """Read a source, and check that no row is lost and every kept job is valid. Return the
        number of jobs kept."""
        adapter, failure = self.adapter, ""
        batches: list[Batch] = []
        try:
            batches += adapter.read(source, adapter.options())
        except TraceError as error:
            failure = str(error)
        assert "\n" not in failure
        for batch in batches:
            accounted = len(batch.jobs) + len(batch.rejects) + sum(batch.skipped.values())
            assert batch.rows == accounted
            check_table(batch.jobs)
            for line in batch.jobs["source_line"].to_pylist():
                assert isinstance(batch.text(line), str)
        return sum(len(batch.jobs) for batch in batches)

    def check_raises(self, source: Path, out: Path) -> None:
        for format in (self.format, "auto"):
            with pytest.raises(TraceError) as caught:
                ingest(source, out, format=format)
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 400
        leftovers = [path.name for path in out.parent.iterdir() if path.name.startswith(".")]
        assert not leftovers


def check_table(table: pa.Table) -> None:
    """Check the rules that hold for every table in the trace schema."""
    assert table.schema.equals(TRACE_SCHEMA)
    table.validate(full=True)
    for field in TRACE_SCHEMA:
        if not field.nullable:
            assert table[field.name].null_count == 0, field.name
    if not len(table):
        return
    assert pc.min(table["gpus"]).as_py() >= 1
    assert pc.max(table["gpus"]).as_py() <= 100_000
    submit, start, end = (table[n] for n in ("submit_time", "start_time", "end_time"))
    for early, late in ((submit, start), (start, end), (submit, end)):
        assert pc.all(pc.less_equal(early, late)).as_py() in (True, None)
    millis = pc.cast(pc.cast(pc.subtract(end, start), pa.int64()), pa.float64())
    ran = pc.divide(millis, 1000.0)
    assert pc.all(pc.equal(ran, table["duration_s"])).as_py() in (True, None)
    assert pc.all(pc.greater_equal(table["duration_s"], 0)).as_py() in (True, None)
    for name in ("duration_s", "cpus", "memory_mib", "gpu_share"):
        assert pc.all(pc.is_finite(table[name])).as_py() in (True, None)
    assert all(1990 <= when.year < 2100 for when in _times(table, "submit_time"))


def _mutate(content: bytearray, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    kind = data.draw(st.sampled_from(["byte", "delete", "copy", "insert", "swap", "digit"]))
    if kind == "byte" and content:
        content[at] = data.draw(st.integers(0, 255))
    elif kind == "delete":
        del content[at : at + data.draw(st.integers(1, 40))]
    elif kind == "copy":
        content[at:at] = content[at : at + data.draw(st.integers(1, 200))]
    elif kind == "swap":
        content[at:at] = data.draw(st.sampled_from([b",", b"|", b"\n", b'"', b"\r", b" ", b"}"]))
    elif kind == "digit":
        words = [b"9" * 30, b"-1", b"nan", b"1e309", b"0", b"NaN", b"-", b"\xff", b"\0", b"null"]
        content[at : at + 1] = data.draw(st.sampled_from(words))
    else:
        content[at:at] = data.draw(st.binary(min_size=1, max_size=8))


def _with_garbage(content: bytes) -> bytes:
    """Return the file content `content` with a line of arbitrary bytes inserted in its middle."""
    middle = content.index(b"\n", len(content) // 2) + 1
    return content[:middle] + GARBAGE.replace(b"\n", b"") + b"\n" + content[middle:]


def _times(table: pa.Table, name: str) -> list[Any]:
    return [when.astimezone(UTC) for when in table[name].to_pylist()]


def _months(table: pa.Table) -> Counter[str]:
    return Counter(f"{when:%Y-%m}" for when in _times(table, "submit_time"))


def _json(path: Path) -> Any:
    return json.loads(path.read_text())
