"""`pellucid eta`: what it asks of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.printed.eta import with_script
from scheduler.slurm.read.request import request
from tests.scheduler.slurm.read.test_request import SITE

SCRIPT = """#!/bin/bash
#SBATCH --gres=gpu:a100:2 --job-name "a run"  # a comment
#SBATCH --mem=40G -t 60
##SBATCH -N 7

# a comment
#SBATCH -N 2
srun train
#SBATCH -N 9
"""


def test_options_in_the_script_count_and_those_of_the_command_line_win(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT)
    job = request(with_script([str(script), "-N", "8"]), SITE, "alice", "1", 0.0)
    assert (job.num_nodes, job.gpu_types, job.name) == (2, (("a100", 2),), "a run")
    assert (job.time_limit_s, job.least_mib, job.per) == (3600.0, 40 * 1024, "node")
    words = ["-N", "3", "--time=5", "--mem=1G", str(script), "--its", "own"]
    asked = with_script(words)
    assert asked[-4:] == words[:4]
    job = request(asked, SITE, "alice", "1", 0.0)
    assert (job.num_nodes, job.time_limit_s, job.gpus) == (3, 300.0, 6)
    assert (job.least_mib, job.per) == (1024, "node")


def test_without_a_script_the_options_are_as_given() -> None:
    assert with_script(["-N", "3", "--exclusive"]) == ["-N", "3", "--exclusive"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.sh", None, "No such file"),
        ("folder", "", "is a directory, not a regular file"),
        ("odd.sh", "#!/bin/sh\n#SBATCH -J 'a\n", "quotes that do not close"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_in_a_line(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    script = tmp_path / name
    if text:
        script.write_text(text)
    elif text is not None:
        script.mkdir()
    with pytest.raises(UserError, match=said) as refused:
        with_script(["-t", "5", str(script)])
    assert len(str(refused.value).splitlines()) == 1
