"""`squeue --json` of every release (`versions/`) is read as the same jobs; which ran is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.slurm.read import parse, versions
from scheduler.slurm.read.site import partitions_of
from scheduler.slurm.read.table import read
from tests.scheduler.slurm.read.test_table import record

SAID = Path(__file__).parent / "versions"
RELEASES = sorted(path.stem for path in SAID.glob("*.json"))


def printed(release: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((SAID / f"{release}.json").read_text())
    return told


def jobs(release: str, **said: Any) -> list[parse.SlurmJob]:
    told = printed(release)
    for job in told["jobs"]:
        job |= said
    return parse.jobs(json.dumps(told))


def test_there_is_a_sample_of_every_release_from_the_oldest_to_the_newest() -> None:
    assert RELEASES == [
        "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"
    ]  # fmt: skip
    assert [versions.release_of(printed(name)) for name in (RELEASES[0], RELEASES[-1])] == [
        versions.OLDEST, versions.NEWEST
    ]  # fmt: skip


def test_what_the_real_daemon_printed_is_read_whole() -> None:
    by_id = {job.id: job for job in jobs("22.05")}
    assert list(by_id) == ["2", "3", "4", "5_1", "5_2", "5_3", "5_4", "6"]
    alone, typed, task, held = by_id["2"], by_id["3"], by_id["5_3"], by_id["6"]
    assert alone.exclusive
    assert (alone.state, alone.nodes, alone.held_gpus) == (
        "RUNNING", ("n3", "n4"), ((0, 1, 2, 3), (0, 1, 2, 3))
    )  # fmt: skip
    assert (typed.gpus, typed.gpu_type, typed.partition) == (2, "a100", "short,long")
    assert (typed.least_mib, typed.per, typed.time_limit_s) == (2048.0, "cpu", 3600.0)
    assert (task.gpus, task.array_limit, task.memory_mib) == (1, 2, 10240.0)
    assert (by_id["4"].licences, held.held, held.gpus) == ("matlab:1", True, 2)


@pytest.mark.parametrize("release", RELEASES[1:])
def test_a_later_release_tells_the_same_jobs(release: str) -> None:
    assert jobs(release) == jobs("22.05")


@pytest.mark.parametrize(
    ("release", "deadline"),
    [("22.05", 9), ("23.11", {"set": True, "infinite": False, "number": 9})],
)
def test_deadlines_and_what_the_policy_does_not_know_are_read_of_json(
    release: str, deadline: Any
) -> None:
    told = jobs(release, deadline=deadline, contiguous=True, excluded_nodes="n[1-2]")[0]
    assert (told.odd, told.exc_nodes) == (("--contiguous",), ("n1", "n2"))
    assert told.deadline == 9.0


def test_a_release_newer_than_all_is_read_as_the_newest() -> None:
    told = printed("26.05")
    told["meta"]["slurm"]["version"] = {"major": "27", "micro": "0", "minor": "11"}
    assert parse.jobs(json.dumps(told)) == jobs("22.05")


@pytest.mark.parametrize("release", ["24.05", "24.11"])
@pytest.mark.parametrize(("parser", "shape"), [("v0.0.39", "23.02"), ("v0.0.40", "23.11")])
def test_an_older_parser_that_a_site_names_is_read_in_its_own_shape(
    release: str, parser: str, shape: str
) -> None:
    told = printed(release) | {"jobs": printed(shape)["jobs"]}
    told["meta"]["plugin"]["data_parser"] = f"data_parser/{parser}"
    assert parse.jobs(json.dumps(told)) == jobs("22.05")


def as_complex(value: Any) -> Any:
    """As `DataParserParameters=+complex` has a number: plain, null or Infinity."""
    if isinstance(value, dict) and "infinite" in value:
        return "Infinity" if value["infinite"] else value["number"] if value["set"] else None
    return value


@pytest.mark.parametrize("release", RELEASES[1:])
def test_numbers_that_a_site_has_printed_plain_are_read(release: str) -> None:
    told = printed(release)
    told["jobs"] = [{name: as_complex(job[name]) for name in job} for job in told["jobs"]]
    assert parse.jobs(json.dumps(told)) == jobs("22.05")
    (unlimited,) = {job.time_limit_s for job in jobs(release, time_limit="Infinity")}
    assert unlimited is None
    assert all(job.eligible is None for job in jobs("24.11", eligible_time=False))


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        (["RUNNING", "CONFIGURING"], "CONFIGURING"),
        (["COMPLETED", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
        (["PENDING"], "PENDING"),
        (["FAILED", "LAUNCH_FAILED"], "FAILED"),
    ],
)
def test_flags_of_a_state_are_the_one_word_of_the_first_release(
    flags: list[str], state: str
) -> None:
    assert jobs("24.11", job_state=flags)[0].state == state


def test_a_job_in_the_shape_of_another_release_is_refused() -> None:
    told = printed("24.11") | {"jobs": printed("22.05")["jobs"]}
    with pytest.raises(parse.ParseError, match="TypeError"):
        parse.jobs(json.dumps(told))


def test_a_table_with_gres_as_since_23_11_is_the_same() -> None:
    (before,) = read(record(tres_per_node="gres:gpu:a100:2"), "(null)", "(null)", "(null)")
    (since,) = read(record(tres_per_node="gres/gpu:a100:2"), "(null)", "(null)", "(null)")
    beside = record(tres_per_node="gres/gpu:a100:2", tres_per_task="cpu=2")
    (also,) = read(beside, "(null)", "(null)", "(null)")
    assert before.gpus == 4
    assert replace(since) == before == also


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("slurm-wlm 22.05.8", ""),
        ("slurm 24.11.5", "24.11 was not run whole on real daemons, but 22.05 was"),
        ("slurm 26.11.0-0rc1", "26.11 is newer than any that is known; it is read as 26.05"),
        ("slurm 21.08.8-2", "21.08 is older than any that is known; it is read as 22.05"),
        ("slurm built from source", "does not say which release it is; it is read as 26.05"),
    ],
)
def test_what_an_administrator_is_told_of_a_release(said: str, words: str) -> None:
    told = versions.caution(versions.release_in(said))
    assert words in told
    assert bool(told) == bool(words)


@pytest.mark.parametrize(
    ("printed", "alone"),
    [
        ("OverSubscribe=NO", False),
        ("OverSubscribe=EXCLUSIVE", True),
        ("OverSubscribe=NO Exclusive=NODE", True),  # 26.05
        ("OverSubscribe=FORCE:2 Exclusive=NO", False),
    ],
)
def test_a_partition_whose_jobs_share_no_node_is_known_in_every_release(
    printed: str, alone: bool
) -> None:
    (found,) = partitions_of(f"PartitionName=b Nodes=n1 State=UP {printed}")
    assert found.exclusive is alone


def test_gpus_are_asked_for_as_the_release_takes_them() -> None:
    assert versions.gpus_word((22, 5), "a100", 2) == "gres:gpu:a100:2"
    assert versions.gpus_word((23, 11), "a100", 2) == "gres/gpu:a100:2"
    assert versions.gpus_word(None, "", 1) == "gres/gpu:1"
