"""What is tried on a queue that is told by the test: no daemons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from features.codec import decode
from pipeline.printed.eta import lines
from scheduler.explain.effect import Eta, Tried
from scheduler.explain.whatif.forecasts import WhyNot
from scheduler.service.log.questions import ETA, TRIED
from scheduler.slurm.follow import trials
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import ClusterSnapshot
from tests.scheduler.slurm.follow.test_follow import NOW, SAYS, Scene, twin


def job(scene: Scene, number: int, gpus: int, hours: float, **more: Any) -> SlurmJob:
    kinds = (("", gpus),)
    return scene.job(number, gpus=gpus, gpu_types=kinds, time_limit_s=hours * 3600.0, **more)


def eta(scene: Scene, user: str, *options: str, gpus: int = 1) -> dict[str, Any]:
    """What is told of a job of five minutes."""
    asked = {"options": [*options, f"--gres=gpu:{gpus}", "-t", "5"], "user": user}
    return scene.follower.answer(ETA, asked)


def partitions(scene: Scene, *names: str, **flags: str) -> None:
    """Partitions of both nodes, with flags."""
    every = (*names, *flags)
    scene.slurm.says["scontrol -a show partition"] = "\n".join(
        f"PartitionName={name} Nodes=n[1-2] State=UP {flags.get(name, '')}" for name in every
    )
    scene.slurm.has = [replace(node, partitions=every) for node in scene.slurm.has]


def test_what_is_tried_without_multifactor_keeps_its_place_in_line() -> None:
    scene = twin(None)
    config = f"{SAYS['scontrol show config']}\nPriorityType = priority/basic"
    scene.slurm.says["scontrol show config"] = config
    all_of, half_of = ((0, 1, 2, 3),), ((0, 1),)
    scene.look(
        job(scene, 1, 4, 90.0, state="RUNNING", nodes=("n1",), held_gpus=all_of, start=NOW),
        job(scene, 2, 2, 10.0, state="RUNNING", nodes=("n2",), held_gpus=half_of, start=NOW),
        job(scene, 3, 4, 20.0, priority=1000, reason="Resources"),
        job(scene, 4, 2, 30.0, priority=999, reason="Priority"),  # too long to go before it
    )
    tried = scene.follower.answer(TRIED, {"job_id": "3"})["tried"]
    assert "with 2 GPUs" in [one["words"] for one in tried if not one["reason"]]


def test_between_passes_a_job_that_the_next_one_would_start_is_said_to_start_at_once() -> None:
    scene = twin(None)
    scene.slurm.says["sdiag"] = f"Last cycle when: Mon Sep 21 ({int(scene.now - 10)})"
    scene.look(job(scene, 1, 4, 1.0))
    assert scene.follower._last is not None
    assert not scene.follower._last[0].core.cluster.runs  # job 1 is to start then, on one node
    for gpus, at_once in ((4, True), (8, False)):
        asked = {"options": ["-p", "main", "-N", str(gpus // 4), "--gres=gpu:4", "-t", "60"]}
        (told,) = scene.follower.answer(ETA, asked | {"user": "ada"})["tried"]
        assert (told["why"] == "it would start at once") is at_once, told


def test_no_start_is_told_before_now() -> None:
    """A start told of the last look had passed by when it was asked for."""
    scene = twin(None)
    held = {"nodes": ("n1", "n2"), "held_gpus": ((0, 1, 2, 3),) * 2, "num_nodes": 2}
    runs = job(scene, 1, 8, 1.0, state="RUNNING", start=NOW, cpus=16, **held)
    scene.look(runs, job(scene, 3, 4, 1.0, reason="Resources"))
    asked = {"options": ["-p", "main", "--gres=gpu:4", "-t", "60"], "user": "ada"}
    (waits,) = scene.follower.answer(ETA, asked)["tried"]
    assert waits["reason"]
    assert waits["start_p50"] > scene.now
    scene.now = waits["start_p50"] + 30.0
    late = scene.follower.answer(ETA, asked)
    assert lines(decode(Eta, late))[1].split() == ["main", "starts", "at", "once"]
    as_it_is = scene.follower.answer(TRIED, {"job_id": "3"})["as_it_is"]
    for one in (*late["tried"], as_it_is):
        assert (one["reason"], one["start_p50"]) == ("", scene.now)
        assert one["start_p90"] >= scene.now


@pytest.mark.parametrize(
    ("gpus", "deadline", "late"),
    [(4, 59, True), (4, 61, False), (8, 61, True), (8, 60 * 24 * 40, False)],
)
def test_a_job_with_too_little_time_before_its_deadline_is_not_said_to_start(
    gpus: int, deadline: int, late: bool
) -> None:
    """Of two nodes the second is taken for an hour."""
    scene = twin(None)
    all_of = ((0, 1, 2, 3),)
    scene.look(job(scene, 1, 4, 1.0, state="RUNNING", start=NOW, nodes=("n2",), held_gpus=all_of))
    options = ["-p", "main", f"-N{gpus // 4}", "--gres=gpu:4", "-t", "60"]
    options.append(f"--deadline=now+{deadline}minutes")
    (told,) = scene.follower.answer(ETA, {"options": options, "user": "ada"})["tried"]
    assert (told["why"] == WhyNot.LATE) is (told["start_p50"] is None) is late, told


def test_partitions_that_there_is_no_time_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = twin(None)
    names = [f"p{number}" for number in range(15)]
    partitions(scene, *names)
    scene.look()
    draw = scene.follower._planner.trial

    def slowly(jobs: Iterable[SlurmJob], now: float) -> ClusterSnapshot:
        scene.now += 3.0
        return draw(jobs, now)

    monkeypatch.setattr(scene.follower._planner, "trial", slowly)
    told = eta(scene, "ada", "-p", "p7")
    tried = [one["partition"] for one in told["tried"]]
    assert tried == ["p7", "p0", "p1", "p2", "p3", "p4"]
    assert told["not_tried"] == [name for name in names if name not in tried]
    assert told["own"].endswith("would start it now.")


def test_groups_close_a_partition_only_to_who_is_known_not_to_be_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name service that answers for one name at a time, and lists nobody: as sssd does."""
    gids = {"ada": 100, "ben": 200}
    numbers = {"staff": 100, "guests": 300}
    monkeypatch.setattr("pwd.getpwall", list)
    monkeypatch.setattr("pwd.getpwnam", lambda name: SimpleNamespace(pw_gid=gids[name]))
    monkeypatch.setattr(
        "grp.getgrnam", lambda name: SimpleNamespace(gr_gid=numbers[name], gr_mem=[])
    )
    monkeypatch.setattr("os.getgrouplist", lambda name, gid: [gid])
    scene = twin(None)
    allowed = {"main": "ALL", "own": "staff", "others": "guests", "unknown": "nobody-knows"}
    partitions(scene, **{name: f"AllowGroups={groups}" for name, groups in allowed.items()})
    scene.look()

    def closed_to(user: str) -> set[str]:
        return {one["partition"] for one in eta(scene, user, "-p", "main")["closed"]}

    assert closed_to("ada") == {"others"}
    assert closed_to("ben") == {"own", "others"}
    assert closed_to("stranger") == closed_to("root") == set()


ENFORCED = "\nAccountingStorageEnforce = associations,limits,qos"
ASSOCS = [
    "root||||1||||||||||||normal|||",
    "ai|||root|1||||||||||||normal|||",
    "ai|ada|||1||||||||||||high,normal|||",
    "bio|||root|1||||||||||||normal|||",
    "bio|ben|||1||||||||||||normal|||",
    "bio|cy|main||1||||||||||||normal|||",
]


@pytest.mark.parametrize(
    ("user", "options", "why"),
    [
        ("ada", "-A bio", "there is no account bio that ada may use"),
        ("ada", "-A gone", "there is no account gone that ada may use"),
        ("dan", "", "dan has no account"),
        ("ada", "--qos=gone", "there is no QOS gone that ada may use"),
        ("ben", "--qos=high", "there is no QOS high that ben may use"),
        ("ada", "-A AI --qos=high", ""),
        ("ben", "-A bio --qos=normal", ""),
        ("cy", "-A bio --qos=high", "there is no QOS high that cy may use"),  # of one partition
        ("cy", "-A bio --qos=normal", ""),
    ],
)
def test_what_slurm_refuses_by_its_associations_has_no_forecast(
    user: str, options: str, why: str
) -> None:
    scene = twin(None)
    scene.slurm.says["scontrol show config"] += ENFORCED
    scene.slurm.says["cluster=c"] = "\n".join(ASSOCS)
    scene.look()
    refused = eta(scene, user, *options.split(), "-p", "main").get("refused")
    assert refused == (f"Slurm refuses this job: {why}" if why else None)


@pytest.mark.parametrize(("more", "shown"), [("", ASSOCS), (ENFORCED, ASSOCS[2:3])])
def test_what_is_not_enforced_or_not_shown_refuses_nothing(more: str, shown: list[str]) -> None:
    scene = twin(None)
    scene.slurm.says["scontrol show config"] += more
    scene.slurm.says["cluster=c"] = "\n".join(shown)
    scene.look()
    assert "refused" not in eta(scene, "ada", "-A", "gone", "--qos=gone", "-p", "main")


def test_a_job_that_names_no_qos_has_its_associations_default() -> None:
    """Over the limit of that QOS it does not start at once."""
    scene = twin(None)
    scene.slurm.says["scontrol show config"] += ENFORCED
    scene.slurm.says["qos"] = f"normal|0{'|' * 24}\nslow|0|gres/gpu=1{'|' * 23}"
    scene.slurm.says["cluster=c"] = "\n".join(
        [*ASSOCS[:2], ASSOCS[2].replace("high,normal|", "normal,slow|slow"), *ASSOCS[3:]]
    )
    scene.look()

    def reasons(user: str, *more: str) -> list[str]:
        return [one["reason"] for one in eta(scene, user, "-p", "main", *more, gpus=2)["tried"]]

    assert reasons("ada") == ["QOSGrpGRES"]
    assert reasons("ada", "--qos=normal") == reasons("ben") == [""]


def test_an_association_of_one_partition_counts_there_and_nowhere_else() -> None:
    scene = twin(None)
    partitions(scene, "main", "short", small="MaxMemPerNode=500")
    scene.slurm.says["scontrol show config"] += ENFORCED
    own = ASSOCS[-1].replace("main||1||", "short||1||gres/gpu=1")
    both = [ASSOCS[4].replace("ben", "cy"), own.replace("gpu=1", "gpu=2").replace("short", "main")]
    scene.slurm.says["cluster=c"] = "\n".join([*ASSOCS[:-1], own])
    scene.slurm.has = [replace(node, memory_mib=9000.0) for node in scene.slurm.has]

    def told(gpus: int) -> dict[str, str]:
        scene.follower._looks = 0
        scene.look()
        found = eta(scene, "cy", "-p", "main", "--mem=800", gpus=gpus)
        tried = {one["partition"]: one["reason"] for one in found["tried"]}
        return tried | {one["partition"]: one["why"] for one in found["closed"]}

    nothing = "takes no jobs of cy in account bio"
    assert told(1) == {"main": nothing, "short": "", "small": nothing}
    assert told(2) == {"main": nothing, "short": "AssocGrpGRES", "small": nothing}
    scene.slurm.says["cluster=c"] += "\n" + "\n".join(both)
    least = "gives 500 MiB of a node at most"
    assert told(2) == {"main": "", "short": "AssocGrpGRES", "small": least}


def test_what_slurm_would_refuse_or_hide_is_not_recommended() -> None:
    scene = twin(None)
    flags = {"admins": "RootOnly=YES", "secret": "Hidden=YES", "course": "ReqResv=YES"}
    partitions(
        scene, main="MaxTime=60", **{name: f"MaxTime=600 {flag}" for name, flag in flags.items()}
    )
    scene.look()

    def told(user: str, *options: str) -> tuple[set[str], set[str]]:
        found = eta(scene, user, *options)
        tried, closed = ({one["partition"] for one in found[k]} for k in ("tried", "closed"))
        return tried, closed

    assert told("ada", "-p", "main") == ({"main"}, {"admins", "course"})
    assert told("ada", "-p", "secret") == ({"main", "secret"}, {"admins", "course"})
    assert told("root", "-p", "main") == ({"main", "admins"}, {"course"})


def test_a_partition_whose_nodes_are_down_is_not_closed() -> None:
    """Slurm takes the job, which waits for them."""
    scene = twin(None)
    scene.slurm.has = [
        replace(node, open=node.name != "n1", state=state)
        for node, state in zip(scene.slurm.has, ("DOWN", "IDLE"), strict=True)
    ]
    scene.look()
    (one,) = eta(scene, "ada", "-N", "2", "-p", "main", gpus=4)["tried"]
    assert (one["reason"], one["start_p50"]) == ("ReqNodeNotAvail", None)
    assert one["why"]


def test_a_change_whose_nine_in_ten_comes_later_is_not_sooner() -> None:
    as_it_is, changed = Tried(2000.0, 3600.0), Tried(800.0, 4260.0)
    assert not trials._sooner(changed, as_it_is, 0.0)
    assert not trials._sooner(as_it_is, as_it_is, 0.0)
    assert trials._sooner(replace(changed, start_p90=3000.0), as_it_is, 0.0)
    assert trials._sooner(changed, Tried(), 0.0)


def test_what_sbatch_would_refuse_is_told_of_no_start_before_submission() -> None:
    """A limit on jobs submitted is no limit of the queue: an array of more tasks than it allows
    was to start at once."""
    scene = twin(None)
    scene.look(job(scene, 1, 1, 1.0))
    refused = "allocation failure: Job violates accounting/QOS policy (job submit limit)"
    for array, said in (("--array=1-137", refused), ("--array=1-5", "")):
        scene.slurm.judge = lambda options, said=said: said if "137" in " ".join(options) else ""  # type: ignore[misc]
        (told,) = eta(scene, "ada", "-p", "main", array)["tried"]
        assert (told["start_p50"] is None) is bool(said), told
        assert ("violates" in told["why"]) is bool(said)
    assert all("--wrap" not in options for _, options in scene.slurm.asked)


def test_that_slurm_would_start_a_job_without_its_dependency_withdraws_nothing() -> None:
    """It is asked about a job without dependencies and begin time; that this one starts at once
    was taken to contradict a job that waits for another."""
    scene = twin(None)
    scene.look(job(scene, 1, 1, 1.0))
    scene.slurm.judge = lambda _: f"sbatch: Job 9 to start at {NOW:.0f} using 1 processors"
    for option in ("--dependency=afternotok:1", "--begin=now+1day"):
        (told,) = eta(scene, "ada", "-p", "main", option)["tried"]
        assert "--test-only" not in told["why"], told


def test_no_file_that_a_user_names_is_opened_by_sbatch() -> None:
    """It takes a name of nodes with a slash for that of a file, and opens it as who runs it."""
    scene = twin(None)
    scene.look(job(scene, 1, 1, 1.0))
    for option in ("--nodelist=/dev/watchdog", "--exclude=n1,./secret", "-w", "-x"):
        eta(scene, "ada", "-p", "main", option, *["/etc/shadow"] * (len(option) == 2))
    assert not scene.slurm.asked
