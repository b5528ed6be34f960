"""Options of sbatch: what cannot be a job is refused in a line."""

from __future__ import annotations

import pytest

from features.clock import LAST_S
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.backends.slurm.request import RequestError, request
from scheduler.backends.slurm.site import asks_of
from scheduler.policies.slurm.site import Partition, Site

SITE = Site({}, {"gpu": Partition("gpu", frozenset(), default=True)})


@pytest.mark.parametrize(
    "options",
    [
        "-N -5", "-n -5", "-N 0", "-N 4-2", "-n 1.5", "-c 0", "-L a:nan", "-L a:-1",
        "--cpus-per-gpu -1", "--gres gpu:" + "9" * 400, "-G a100:100001", "--mem " + "9" * 400,
        "--nice " + "9" * 400, "-b now+" + "9" * 400, "-t " + "9" * 400,
    ],
)  # fmt: skip
def test_a_number_that_no_job_can_have_is_refused_in_a_line(options: str) -> None:
    with pytest.raises(RequestError) as refused:
        request(options.split(), SITE, "alice", "1", 0.0)
    assert len(str(refused.value).splitlines()) == 1


def test_numbers_that_a_job_can_have_are_taken() -> None:
    options = "-N 2-4 -n 8 -c 2 -L a:2 --gres gpu:a100:4 --mem 40G --nice -5 -b now+1hour -t 60"
    job = request(options.split(), SITE, "alice", "1", 0.0)
    assert (job.num_nodes, job.max_nodes, job.cpus, job.gpus, job.nice) == (2, 4, 16, 8, -5)


def test_a_begin_beyond_any_calendar_is_its_end() -> None:
    job = request(["-b", "now+9999999999weeks"], SITE, "alice", "1", 0.0)
    assert job.eligible == LAST_S == parse.moment("6047999999996000")


def test_a_licence_is_counted_by_digits_alone() -> None:
    job = SlurmJob("1", "PENDING", "alice", "a", "gpu", 0.0, licences="a:\N{SUPERSCRIPT TWO},b:3")
    assert asks_of([job], SITE)["1"].licences == (("a", 1), ("b", 3))


def test_options_that_place_nothing_are_taken_and_change_nothing() -> None:
    asked = ["-N", "2", "--gres=gpu:4"]
    ordinary = [
        "--mail-type=END,FAIL", "--mail-user", "ada@site", "--export=ALL,A=1", "-o", "out", "-k",
        "--error=%j", "--chdir=/tmp", "--parsable", "--requeue", "-Q", "--open-mode=append",
        "--signal=B:USR1@60", "--propagate=STACK", "--get-user-env", "--no-kill=off", "-i", "in",
        "--wrap", "srun train --hold",
    ]  # fmt: skip
    plain = request(asked, SITE, "alice", "1", 0.0)
    assert request([*ordinary, *asked], SITE, "alice", "1", 0.0) == plain
    assert request([*asked, *ordinary], SITE, "alice", "1", 0.0) == plain


def test_only_nodes_that_are_shared_with_nobody_are_exclusive() -> None:
    found = {
        words: request(words.split(), SITE, "alice", "1", 0.0).exclusive
        for words in ("", "--exclusive", "--exclusive=user", "--exclusive --exclusive=mcs")
    }
    assert [words for words, exclusive in found.items() if exclusive] == ["--exclusive"]


@pytest.mark.parametrize(
    "option", ["--nonsense", "--hold", "--switches=1", "--exclusive=topo", "-s", "--contiguous"]
)
def test_options_that_are_not_known_or_place_a_job_otherwise_are_refused(option: str) -> None:
    with pytest.raises(RequestError):
        request([option], SITE, "alice", "1", 0.0)
