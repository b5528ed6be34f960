"""Reading workloads of Tiresias."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import UserError
from reproductions.tiresias_las import TENSOR_SKEW
from reproductions.workloads.tiresias import (
    TiresiasGroundTruth,
    read_trace,
)

HEAD = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text(text)
    return path


def test_bad_rows_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        HEAD
        + "b,1,30,1,vgg11,60,0\na,2,10,1,vgg11,50,0\nc,0,40,1,vgg11,60,0\n"
        + "d,1,x,1,vgg11,60,0\na,1,50,1,vgg11,60,0\ne,1,60,1,vgg11,nan,0\n",
    )
    jobs, wrong = read_trace(path, stretch=10.0)
    assert [(row.job.job_id, row.job.submit_time, row.duration_s) for row in jobs] == [
        ("a", 100.0, 500.0),
        ("b", 300.0, 600.0),
    ]
    assert [text.split(":")[0] for text in wrong] == ["line 4", "line 5", "line 6", "line 7"]
    assert "submit_time is 'x'" in wrong[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [("job_id,duration\n1,2\n", "no column 'num_gpu'"), (HEAD, "no job in it"), ("", "no column")],
)
def test_other_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_trace(write(tmp_path, text))
    with pytest.raises(UserError, match="cannot be read"):
        read_trace(tmp_path / "nothing.csv")


def test_skew_is_offered_only_when_every_model_is_known(tmp_path: Path) -> None:
    known, _ = read_trace(write(tmp_path, HEAD + "a,2,10,1,vgg16,50,0\n"))
    other, _ = read_trace(write(tmp_path, HEAD + "a,2,10,1,unheard-of,50,0\n"))
    assert TENSOR_SKEW in TiresiasGroundTruth(known).offers
    assert TENSOR_SKEW not in TiresiasGroundTruth(other).offers
