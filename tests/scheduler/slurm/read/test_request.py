"""Options of sbatch: what cannot be a job is refused in a line."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from features.clock import LAST_S
from scheduler.slurm.read import parse
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.request import RequestError, options_of, request, script_of
from scheduler.slurm.read.site import asks_of, defaults_in
from scheduler.slurm.twin.site import Assoc, Partition, Site

SITE = Site({}, {"gpu": Partition("gpu", frozenset(), default=True)})


@pytest.mark.parametrize(
    "options",
    [
        "-N -5", "-n -5", "-N 0", "-N 4-2", "-n 1.5", "-c 0", "-L a:nan", "-L a:-1",
        "--cpus-per-gpu -1", "--gres gpu:" + "9" * 400, "-G a100:100001", "--mem " + "9" * 400,
        "--nice " + "9" * 400, "-b now+" + "9" * 400, "-t " + "9" * 400,
        "--mem=1G --mem-per-cpu=1G", "--mem-per-gpu=1G -G 1 --mem=1G",
        # not known, or they place a job otherwise
        "--nonsense", "--hold", "--exclusive=topo", "-s", "--gpus=1 : --gpus=2",
    ],
)  # fmt: skip
def test_what_sbatch_refuses_is_refused_in_a_line(options: str) -> None:
    with pytest.raises(RequestError) as refused:
        request(options.split(), SITE, "alice", "1", 0.0)
    assert len(str(refused.value).splitlines()) == 1


def test_numbers_that_a_job_can_have_are_taken() -> None:
    options = "-N 2-4 -n 8 -c 2 -L a:2 --gres gpu:a100:4 --mem 40G --nice -5 -b now+1hour -t 60"
    assert request(options.split(), SITE, "alice", "1", 0.0).nice == -5
    for text, sizes in {
        options: (2, 4, 16, 8),
        "-n 4 --gpus-per-task 2": (1, 4, 4, 8),
        "-n 8 --ntasks-per-node 4": (2, 8, 8, 0),
        "-N 3 --gpus-per-node 2": (3, 3, 3, 6),
        "-G 4": (1, 0, 1, 4),  # on any number of nodes
        "-N 2 -G 4": (2, 2, 2, 4),
    }.items():
        job = request(text.split(), SITE, "alice", "1", 0.0)
        assert (job.num_nodes, job.max_nodes, job.cpus, job.gpus) == sizes, text
        assert (job.name, job.array_limit) == ("wrap", 0)
    job = request(["-J", "train", "-a", "1-9%2"], SITE, "alice", "1", 0.0)
    assert (job.name, job.array_limit) == ("train", 2)


@pytest.mark.parametrize(
    "options",
    [
        "-t 60", "-N 2 --gres=gpu:a100:4,nvme:40 --mem=40G -c 8", "-N 2-4 -n 8 -c 2 -L a:2",
        "-G 4 --mem-per-gpu=8G --cpus-per-gpu=4", "-n 6 --mem-per-cpu=2G -C big&fast -x n[1-2]",
        "-w n3 --exclusive --reservation=later -A bio -q high", "--gpus-per-node=h100:2",
    ],
)  # fmt: skip
def test_options_of_a_job_ask_for_what_it_asks_for(options: str) -> None:
    job = request(options.split(), SITE, "alice", "1", 0.0)
    found = options_of(job, SITE, 0.0)
    assert found is not None
    again = request(found, SITE, "alice", "1", 0.0)
    assert replace(again, max_nodes=job.max_nodes, cpus_per_gpu=job.cpus_per_gpu) == job


@pytest.mark.parametrize("more", [{"odd": ("--hint",)}, {"id": "1+0"}, {"cpus": 7, "min_cpus": 2}])
def test_no_options_are_given_that_ask_for_something_else(
    more: dict[str, Any],
) -> None:
    job = replace(request(["-n8"], SITE, "alice", "1", 0.0), **more)
    assert options_of(job, SITE, 0.0) is None


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


def test_options_that_the_policy_does_not_know_are_said_and_no_start_is_foreseen_by_them() -> None:
    said = "--switches=1 --contiguous --deadline=now+40minutes --hint=nomultithread -x n[1-2]"
    job = request(said.split(), SITE, "alice", "1", 0.0)
    assert job.odd == ("--contiguous", "--switches", "--hint")
    assert job.deadline == 2400.0
    assert job.exc_nodes == ("n1", "n2")


def test_what_a_job_does_not_say_is_its_partitions() -> None:
    has = {"DefCpuPerGPU": 2.0, "DefMemPerGPU": 6000.0}
    site = Site(
        {},
        {"gpu": Partition("gpu", frozenset(), defaults=has), "cpu": Partition("cpu", frozenset())},
        config={"DefMemPerCPU": "100"},
        assocs={
            ("a", ""): Assoc("a"),
            ("a", "al"): Assoc("a", "al"),
            ("b", "al"): Assoc("b", "al"),
        },
        accounts={"al": "b"},
    )

    def made(*options: str) -> tuple[int, float | None, str]:
        job = request(options, site, "al", "1", 0.0)
        return job.cpus, job.memory_mib, job.account

    assert made("-p", "gpu", "--gpus=3") == (6, 18_000.0, "b")
    assert made("-p", "gpu", "--gpus=3", "--mem=1G", "-c", "4", "-A", "a") == (4, 1024.0, "a")
    assert made("-p", "gpu", "-n", "2") == (2, 200.0, "b")
    assert made("-p", "cpu", "--gpus=3") == (1, 100.0, "b")


def test_memory_that_a_partition_gives_by_the_node_hides_the_sites_by_the_cpu() -> None:
    """A job that sbatch refuses, since it gets more memory than any node has, was to start at
    once."""
    own = Partition("own", frozenset(), defaults={"DefMemPerNode": 9e5, "DefCpuPerGPU": 2.0})
    config = {"DefMemPerCPU": "100", "MaxMemPerCPU": "4000"}
    site = Site({}, {"own": own, "all": Partition("all", frozenset())}, config=config)
    jobs = [request(["-p", name], site, "al", "1", 0.0) for name in ("own", "all")]
    assert [(job.least_mib, job.per) for job in jobs] == [(9e5, "node"), (100.0, "cpu")]
    assert defaults_in(config, own)["MaxMemPerCPU"] == 4000.0


@pytest.mark.parametrize(
    ("job_id", "limit_s", "deadline"),
    [("1", 600.0, 5000.0), ("1", None, 5000.0), ("1", 3600.0, None), ("1+0", 600.0, None)],
)
def test_a_deadline_of_which_too_little_is_known_is_not_modelled(
    job_id: str, limit_s: float | None, deadline: float | None
) -> None:
    """A job without a limit is shown with its partition's; parts of one job go together."""
    site = Site({}, {"gpu": Partition("gpu", frozenset(), max_time_s=3600.0)})
    job = SlurmJob(job_id, "PENDING", "ada", "a", "gpu", 0.0, time_limit_s=limit_s, deadline=5000.0)
    ask = asks_of([job], site)[job_id]
    assert (ask.deadline, ask.odd) == (deadline, () if deadline else ("--deadline",))


@pytest.mark.parametrize(("nodes", "wants"), [("", (3, 3)), ("-N 2", (2, 2))])
def test_a_job_has_as_many_nodes_as_it_counts_where_it_says_no_number(
    nodes: str, wants: tuple[int, int]
) -> None:
    job = request([*nodes.split(), "-C", "[a*2&b*1]"], SITE, "alice", "1", 0.0)
    ask = asks_of([job], SITE)["1"]
    assert (ask.nodes, ask.max_nodes) == wants


@pytest.mark.parametrize(("text", "second"), [("T10:00:59", 59), ("T10:00", 0), ("", -36_000)])
def test_moments_are_read_to_the_second(text: str, second: int) -> None:
    ten = time.mktime((2030, 5, 1, 10, 0, 0, 0, 0, -1))
    job = request([f"--deadline=2030-05-01{text}"], SITE, "alice", "1", 0.0)
    assert job.deadline == ten + second


@pytest.mark.parametrize("one", [["-k"], ["-n", "1"], ["-n1"], ["--wait"], ["--mem=1", "-W"]])
def test_thousands_of_options_are_refused_at_once(one: list[str]) -> None:
    begun = time.thread_time()
    with pytest.raises(RequestError, match="more than 200 options"):
        script_of(one * 4000)
    assert time.thread_time() - begun < 0.1
    args = ["x.sh", *one * 1000]
    assert script_of(args) == args, "of the script, as many as it likes"
    assert script_of(["--nodes=1", *args]) == script_of(["-N", "1", *args]) == args


def test_thousands_of_options_in_one_word_are_refused() -> None:
    for many in ("-" + "k" * 201, f"-{'QvWk' * 1000}pgpu"):
        with pytest.raises(RequestError, match="more than 200 options"):
            script_of([many])
    assert script_of(["-QvWkpgpu", f"-J{'k' * 300}", "--wait", "x.sh", "-k"]) == ["x.sh", "-k"]
