"""Records of a dump, whatever its lines: none is lost to what stands in a name or a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.replay.extra import read_extra
from pipeline.traces import ingest
from pipeline.traces.base import TraceError
from pipeline.traces.dataset import read_dataset
from pipeline.traces.sacct_records import HEADERLESS, Records

NAMES = (
    "JobID", "JobName", "User", "Partition", "Submit", "SubmitLine", "Start", "End", "Elapsed",
    "State", "NNodes", "AllocTRES",
)  # fmt: skip
TIME = "2026-03-02T0{}:00:00"


def line(number: int, **other: str) -> str:
    values = {
        "JobID": str(number), "JobIDRaw": str(number), "JobName": "train", "User": "ada",
        "Partition": "gpu", "Submit": TIME.format(0), "SubmitLine": "sbatch job.sh",
        "Start": TIME.format(1), "End": TIME.format(2), "Elapsed": "01:00:00",
        "State": "COMPLETED", "NNodes": "1", "AllocTRES": "cpu=4,gres/gpu=1,mem=32G,node=1",
        "Eligible": TIME.format(0), "ExitCode": "0:0", "Timelimit": "1-00:00:00", "NCPUS": "4",
        "Cluster": "c", "ReqTRES": "cpu=4,gres/gpu=1", "NodeList": "n1", "ReqCPUS": "4",
    } | other  # fmt: skip
    return "|".join(
        values.get(name, "") for name in other.get("columns", "|".join(NAMES)).split("|")
    )


def load(folder: Path, text: bytes | str) -> tuple[Any, list[dict[str, Any]]]:
    dump = folder / "dump.txt"
    dump.write_bytes(text if isinstance(text, bytes) else text.encode())
    summary = ingest(dump, folder / "out", format="sacct", timezone="UTC")
    return summary, read_dataset(folder / "out").to_pylist()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("SubmitLine", "sbatch --wrap=python a.py 2>&1 | tee log"),
        ("JobName", "a|b||c"),
        ("JobName", "two\nlines"),
        ("JobName", "three\n\nlines|and a bar"),
        ("SubmitLine", "sbatch --wrap='a\nb | c'"),
        ("JobName", "7|2026-03-02T00:00:00"),
    ],
)
def test_free_text_costs_no_job(tmp_path: Path, of: str, value: str, last: bool) -> None:
    names = [*(n for n in NAMES if n != "SubmitLine"), "SubmitLine"] if last else list(NAMES)
    columns = "|".join(names)
    rows = [line(n, columns=columns, **({of: value} if n % 2 else {})) for n in range(1, 7)]
    summary, jobs = load(tmp_path, "\n".join([columns, *rows]) + "\n")
    assert (summary.kept, summary.quarantined) == (6, {})
    assert [job["job_id"] for job in jobs] == list("123456")
    assert {job["gpus"] for job in jobs} == {1}
    lines = np.array([job["source_line"] for job in jobs])
    extra = read_extra(tmp_path / "dump.txt", lines)
    assert extra.of("User") == ["ada"] * 6
    flat = " ".join(value.split("\n"))
    if of == "SubmitLine":
        assert [one in (value, flat) for one in extra.of("SubmitLine")] == [True, False] * 3
    else:
        assert [job["name"] in (value, flat) for job in jobs] == [True, False] * 3


def test_bytes_of_another_encoding_cost_no_job(tmp_path: Path) -> None:
    rows = [line(1, JobName="gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"), line(2)]
    text = "\n".join(["|".join(NAMES), *rows]) + "\n"
    summary, jobs = load(tmp_path, text.encode("latin-1"))
    assert (summary.kept, summary.warnings["other_encoding"]) == (2, 1)
    assert jobs[0]["name"] == "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"


def test_a_line_that_was_cut_is_no_part_of_another(tmp_path: Path) -> None:
    names = [*(n for n in NAMES if n != "SubmitLine"), "SubmitLine"]
    columns = "|".join(names)
    rows = [line(1, columns=columns), line(2, columns=columns)[:40], line(3, columns=columns)]
    summary, jobs = load(tmp_path, "\n".join([columns, *rows]) + "\n")
    assert [job["job_id"] for job in jobs] == ["1", "3"]
    assert summary.quarantined == {"wrong_column_count": 1}


def test_records_go_on_in_the_next_block() -> None:
    records = Records(NAMES)
    whole = (line(1) + "\n" + line(2, JobName="two\nlines") + "\n").encode()
    cut = whole.index(b"two\n") + 4
    first, held = records.mend(whole[:cut], last=False)
    then, held = records.mend(whole[cut:])
    assert (first.count(b"\n"), held) == (1, 1)
    assert first + then == (line(1) + "\n" + line(2, JobName="two lines") + "\n\n").encode()


@pytest.mark.parametrize("names", HEADERLESS)
def test_what_xdmod_has_sites_dump_needs_no_header(tmp_path: Path, names: tuple[str, ...]) -> None:
    gres = {"ReqGRES": "gpu:1", "GID": "1", "UID": "1", "QOS": "normal", "Group": "g"}
    rows = [line(n, columns="|".join(names), JobName="a|b", **gres) for n in (1, 2)]
    summary, jobs = load(tmp_path, "\n".join(rows) + "\n")
    assert summary.kept == 2
    assert [(job["job_id"], job["name"]) for job in jobs] == [("1", "a|b"), ("2", "a|b")]
    assert read_extra(tmp_path / "dump.txt", np.array([1, 2])).of("User") == ["ada", "ada"]


def test_other_columns_without_a_header_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no header: make the dump without"):
        load(tmp_path, line(1, columns="JobID|Submit|Start|End|State|AllocTRES") + "\n")


def test_clusters_are_not_taken_for_one(tmp_path: Path) -> None:
    columns = "Cluster|" + "|".join(NAMES)
    rows = [line(n, columns=columns, Cluster=name) for n, name in enumerate(("b", "a"), 1)]
    with pytest.raises(TraceError, match=r"2 clusters \(a, b\).*sacct -M a"):
        load(tmp_path, "\n".join([columns, *rows]) + "\n")


def test_a_run_that_was_requeued_is_an_attempt(tmp_path: Path) -> None:
    rows = [
        line(1, State="REQUEUED"),
        line(1, State="COMPLETED", Start=TIME.format(3), End=TIME.format(4)),
    ]
    rows.append(line(2, State="REQUEUED", Start="Unknown", End="Unknown"))
    rows += [line(3, State="PENDING"), line(4, State="PENDING", Start="Unknown", End="Unknown")]
    _, jobs = load(tmp_path, "\n".join(["|".join(NAMES), *rows]) + "\n")
    found = ["preempted", "completed", "pending", "preempted", "pending"]
    assert [job["state"] for job in jobs] == found


def test_many_bars_take_no_long_time() -> None:
    """Ways to put a line together are bounded, whatever stands in it."""
    free = [n for n in NAMES if n != "SubmitLine"]
    records = Records([*free, "Comment", "AdminComment", "SubmitLine", "WorkDir"])
    tried = 0

    def counted(values: object) -> bool:
        nonlocal tried
        tried += 1
        return False

    records._stands = counted  # type: ignore[method-assign]
    records.whole(b"|" * 34)
    assert 0 < tried <= 512
