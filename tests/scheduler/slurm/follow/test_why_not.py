"""What a job lacks on each node, what that suggests to try, and what Slurm itself contradicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

import pytest

from features.codec import decode
from pipeline.printed.why import sooner_lines
from scheduler.explain.effect import Eta, Sooner, Tried
from scheduler.explain.whatif.forecasts import WhyNot
from scheduler.service.log.questions import ETA, NODES, TRIED
from scheduler.slurm.follow.checks import Verdict, against_trial, put_back_s
from scheduler.slurm.follow.reasons import _limit
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.site import QOS
from scheduler.slurm.reason import sentence
from scheduler.slurm.twin.limits import Hit
from tests.scheduler.slurm.follow.test_follow import NOW, SAYS, Scene, twin

GIB = 1024.0
CONFIG = "scontrol show config"


@pytest.fixture
def scene() -> Scene:
    """Two nodes of eight CPUs, four GPUs, 125 GiB and 100 nvme."""
    scene = twin(None)
    scene.slurm.has = [
        replace(node, memory_mib=125 * GIB, gres=(("nvme", 100),)) for node in scene.slurm.has
    ]
    return scene


def waits(scene: Scene, number: int | str = 9, gpus: int = 1, **more: Any) -> SlurmJob:
    asked = {"gpu_types": (("", gpus),), "gpus_per_node": True, "reason": "Resources"}
    known = {"max_nodes": 1, "time_limit_s": 3600.0, "tres": (("cpu", 1.0), ("gres/gpu", gpus))}
    return scene.job(number, gpus=gpus, **(asked | known | more))


def runs(scene: Scene, number: int, node: str, gpus: int = 0, **more: Any) -> SlurmJob:
    held = (tuple(range(gpus)),) if gpus else ()
    counted = (("cpu", float(more.get("cpus", 1))), ("mem", more.pop("memory", 0.0)))
    known = {"nodes": (node,), "held_gpus": held, "start": NOW, "time_limit_s": 5 * 3600.0}
    return scene.job(number, "RUNNING", gpus=gpus, tres=counted, **(known | more))


def why(scene: Scene, *queue: SlurmJob, job_id: str = "9") -> str:
    scene.look(*queue)
    return sentence(scene.follower.reasons[job_id], job_id, scene.now)


def commands(scene: Scene, job_id: str = "9") -> list[str]:
    return [one["command"] for one in changes_tried(scene, job_id) if not one["reason"]]


def changes_tried(scene: Scene, job_id: str = "9") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.follower.answer(TRIED, {"job_id": job_id})["tried"]
    return found


def only_n1(scene: Scene) -> None:
    scene.slurm.has = scene.slurm.has[:1]
    partition = "PartitionName=main Nodes=n1 State=UP MaxTime=UNLIMITED"
    scene.slurm.says["scontrol -a show partition"] = partition
    scene.restart()


def test_memory_is_named_where_it_is_short_and_as_much_as_is_free_is_tried(scene: Scene) -> None:
    only_n1(scene)
    hog = runs(scene, 1, "n1", gpus=1, memory=120 * GIB)
    asked = waits(scene, least_mib=32 * GIB, memory_mib=32 * GIB)
    text = why(scene, hog, asked)
    assert text.startswith(
        "GPUs are free (3 of 4 on n1), memory is not: 5 GiB of 125 GiB free, it asks for 32 GiB; "
        "n1 could run it by "
    )
    assert "scontrol update jobid=9 minmemorynode=5120" in commands(scene)


@pytest.mark.parametrize("planned", [(), ("n2",)])
def test_a_node_with_a_part_of_the_gpus_would_not_do_where_slurm_plans_one_node(
    scene: Scene, planned: tuple[str, ...]
) -> None:
    """By what is known no node has the memory alone, and the job could be spread."""
    first, second = scene.slurm.has
    scene.slurm.has = [replace(first, gpus=2, types=(("", 2),)), second]
    scene.restart()
    hogs = [runs(scene, n, f"n{n}", gpus=1) for n in (1, 2)]
    memory = {"per": "gpu", "least_mib": 40 * GIB, "memory_mib": 40 * GIB}
    job = waits(scene, gpus=4, planned=planned, gpus_per_node=False, max_nodes=0, **memory)
    scene.look(*hogs, job)
    needed = scene.follower.reasons["9"].needed
    assert needed is not None
    assert needed.would_do.first == (planned or ("n1", "n2"))


def test_a_job_of_two_nodes_of_which_one_is_drained_could_run_on_the_other(scene: Scene) -> None:
    first, second = scene.slurm.has
    scene.slurm.has = [replace(first, state="DRAINED", reason="vendor case"), second]
    scene.restart()
    tres = (("cpu", 2.0), ("node", 2.0), ("gres/gpu", 8.0))
    two = waits(scene, gpus=8, gpu_types=(("", 4),), num_nodes=2, max_nodes=2, cpus=2, tres=tres)
    assert "1 (n2) has enough free" in why(scene, two)
    assert "scontrol update jobid=9 numnodes=1-1" in commands(scene)


def test_a_job_of_one_node_could_run_on_two_that_have_half_of_its_gpus_each(scene: Scene) -> None:
    hogs = [runs(scene, n, f"n{n}", gpus=2) for n in (1, 2)]
    assert "it asks for 4 on one node" in why(scene, *hogs, waits(scene, gpus=4))
    command = "scontrol update jobid=9 numnodes=2-2 trespernode=gres:gpu:2"
    assert command in [one.replace("gres/gpu", "gres:gpu") for one in commands(scene)]
    # three cannot be halved, and with --nodelist no other node will do
    for other in (waits(scene, gpus=3), waits(scene, gpus=4, req_nodes=("n1",))):
        scene.look(*hogs, other)
        assert not any("numnodes" in one for one in commands(scene))


def _hogged(scene: Scene) -> dict[str, Any]:
    """Return what would help a job of 32 GiB where 5 are free."""
    only_n1(scene)
    hog = runs(scene, 1, "n1", gpus=1, memory=120 * GIB)
    scene.look(hog, waits(scene, least_mib=32 * GIB, memory_mib=32 * GIB))
    return scene.follower.answer(TRIED, {"job_id": "9"})


LESS = "scontrol update jobid=9 minmemorynode=5120"


@pytest.mark.parametrize(
    ("as_it_is", "with_less", "offered", "by_slurm"),
    [
        ("", "", True, False),  # this account may not ask, or there was no answer
        ("at {later}", "at {now}", True, True),
        ("at {later}", "at {later}", False, False),
        ("at {later}", "no", False, False),
        ("no", "no", True, False),  # refused for what is no matter of the change, perhaps
        ("no", "at {now}", True, True),
        ("at {later}", "", True, False),
    ],
)
def test_an_offer_that_sbatch_test_only_contradicts_is_none(
    scene: Scene, as_it_is: str, with_less: str, offered: bool, by_slurm: bool
) -> None:
    def judge(options: Sequence[str]) -> str:
        text = with_less if "--mem=5120M" in options else as_it_is
        text = text.format(now=int(scene.now), later=int(scene.now + 18_000))
        if text.startswith("at "):
            return TRIAL.format(at=text[3:])
        return "allocation failure: Job violates accounting/QOS policy" if text else ""

    scene.slurm.judge = judge
    told = _hogged(scene)
    found = {one["command"]: one for one in told["tried"]}
    assert (LESS in found) is offered
    assert ("with 5 GiB of memory" in told["refused"]) is not offered
    assert not offered or found[LESS]["by_slurm"] is by_slurm
    (user, options), *_ = scene.slurm.asked
    assert (user, options[:1]) == ("u9", ["--partition=main"])
    assert {"--gres=gpu:1", "--mem=32768M", "--time=60", "--nodes=1"} <= set(options)
    *_, which = sooner_lines(decode(Sooner, told)) or [""]
    words = "on a copy of the queue and by sbatch --test-only" if by_slurm else "the queue alone"
    assert not offered or words in which


def test_a_limit_that_a_job_is_over_by_itself_is_named_whatever_backfill_says(scene: Scene) -> None:
    scene.slurm.says["scontrol show config"] += "\nAccountingStorageEnforce = limits,qos"
    scene.slurm.says["qos"] = f"one|0{'|' * 24}"
    scene.restart()
    asked = waits(scene, qos="one", num_nodes=2, max_nodes=2, tres=(("cpu", 2.0), ("node", 2.0)))
    before = why(scene, runs(scene, 1, "n1", gpus=4), asked)
    assert "at most" not in before
    limits = ["one", "0", *[""] * (len(QOS) - 2)]
    limits[QOS.index("MaxTRES")] = "node=1"
    scene.slurm.says["qos"] = "|".join(limits)
    scene.restart()
    text = why(scene, runs(scene, 1, "n1", gpus=4), asked)
    assert text == (
        "QOS one gives a job 1 node at most (MaxTRESPerJob), and this job asks for 2: it can "
        "never start like this."
    )


@pytest.mark.parametrize(
    ("partition", "limit", "asked", "offered"),
    [
        ("MaxTime=10", "", {}, "timelimit=10"),
        ("MaxNodes=1", "", {"num_nodes": 2, "max_nodes": 2, "cpus": 2}, "numnodes=1-1"),
        ("", "MaxWall=7", {}, "timelimit=7"),
        ("", "MaxTRESMins=cpu=11", {}, "timelimit=11"),
        ("", "MaxTRES=gres/gpu=3", {"gpus": 4}, "gres:gpu:3"),
        ("", "MaxTRESPerNode=cpu=3", {"cpus": 8, "min_cpus": 8}, "cpuspertask=3 mincpusnode=3"),
        ("", "MaxTRES=mem=300M", {"least_mib": 1024.0, "memory_mib": 1024.0}, "memorynode=300"),
    ],
)
def test_as_much_as_a_limit_allows_is_tried(
    scene: Scene, partition: str, limit: str, asked: dict[str, Any], offered: str
) -> None:
    """Nothing was offered to jobs that could never start as they were."""
    config = "\nAccountingStorageEnforce = limits,qos\nSLURM_VERSION = 22.05.8"
    scene.slurm.says["scontrol show config"] += config
    named = f"PartitionName=main Nodes=n[1-2] State=UP {partition}"
    scene.slurm.says["scontrol -a show partition"] = named
    name, _, value = limit.partition("=")
    row = [value if column == name else "" for column in QOS]
    scene.slurm.says["qos"] = "|".join(["one", "0", *row[2:]])
    scene.restart()
    tres = {"cpu": float(asked.get("cpus", 1)), "mem": asked.get("memory_mib", 0.0)}
    tres |= {"gres/gpu": float(asked.get("gpus", 1)), "node": float(asked.get("num_nodes", 1))}
    scene.look(waits(scene, qos="one", tres=tuple(tres.items()), reason="x", **asked))
    assert [one for one in commands(scene) if one.endswith(offered)], commands(scene)


@pytest.mark.parametrize(("limit", "offered"), [("3", ""), ("16", "timelimit=2")])
def test_no_limit_at_all_is_never_offered_as_a_short_one(
    scene: Scene, limit: str, offered: str
) -> None:
    """`timelimit=0` stands for none."""
    config = "\nAccountingStorageEnforce = limits,qos\nSLURM_VERSION = 22.05.8"
    scene.slurm.says["scontrol show config"] += config
    row = [f"cpu={limit}" if column == "MaxTRESMins" else "" for column in QOS]
    scene.slurm.says["qos"] = "|".join(["one", "0", *row[2:]])
    scene.restart()
    tres = (("cpu", 8.0), ("gres/gpu", 1.0), ("node", 1.0))
    scene.look(waits(scene, qos="one", cpus=8, min_cpus=8, tres=tres, reason="x"))
    limits = [one.rpartition(" ")[2] for one in commands(scene) if "timelimit=" in one]
    assert "timelimit=0" not in limits
    assert offered in ["", *limits], "a limit of a minute or more is"


@pytest.mark.parametrize("most", ["7-00:00:00", "UNLIMITED"])
def test_minutes_of_what_it_asks_for_are_counted_by_the_default_time_limit(
    scene: Scene, most: str
) -> None:
    config = "\nAccountingStorageEnforce = limits,qos\nSLURM_VERSION = 22.05.8"
    scene.slurm.says["scontrol show config"] += config
    named = f"PartitionName=main Nodes=n[1-2] State=UP DefaultTime=60 MaxTime={most}"
    scene.slurm.says["scontrol -a show partition"] = named
    row = ["cpu=160" if column == "MaxTRESMins" else "" for column in QOS]
    scene.slurm.says["qos"] = "|".join(["one", "0", *row[2:]])
    scene.restart()
    tres = (("cpu", 8.0), ("gres/gpu", 1.0), ("node", 1.0))
    asked = waits(scene, qos="one", cpus=8, min_cpus=8, tres=tres, reason="x", time_limit_s=None)
    scene.look(asked)
    limits = [one.rpartition(" ")[2] for one in commands(scene) if "timelimit=" in one]
    assert limits == ["timelimit=20"]


def test_a_waiting_hour_puts_others_back_by_half_an_hour_where_there_are_two_nodes(
    scene: Scene,
) -> None:
    scene.look(waits(scene), runs(scene, 1, "n1", cpus=6))
    site = scene.follower._planner.site
    assert site is not None
    assert put_back_s(site, scene.slurm.queue, "main") == 1800.0
    assert put_back_s(site, [], "main") == 0.0
    assert put_back_s(site, [waits(scene)] * 512, "main") == inf  # more may wait
    assert put_back_s(site, [waits(scene, time_limit_s=None)], "main") == inf


def test_cpus_are_named_where_they_are_short(scene: Scene) -> None:
    only_n1(scene)
    text = why(scene, runs(scene, 1, "n1", cpus=6), waits(scene, cpus=4, min_cpus=4))
    assert text.startswith("GPUs are free (4 of 4 on n1), CPUs are not: 2 of 8 free, it asks for 4")
    assert "scontrol update jobid=9 numcpus=2 cpuspertask=2 mincpusnode=2" in commands(scene)


def test_free_gpus_on_several_nodes_are_not_free_on_one(scene: Scene) -> None:
    both = (runs(scene, 1, "n1", gpus=2), runs(scene, 2, "n2", gpus=2))
    text = why(scene, *both, waits(scene, gpus=4))
    assert text.startswith(
        "4 GPUs are free, 2 on n1 and 2 on n2, and it asks for 4 on one node; n1 could run it"
    )
    assert any(one.endswith("gpu:2") for one in commands(scene))


def test_other_gres_run_out_as_gpus_do(scene: Scene) -> None:
    only_n1(scene)
    hog = runs(scene, 1, "n1", gpus=1, gres=(("nvme", 80),))
    text = why(scene, hog, waits(scene, gres=(("nvme", 40),)))
    assert text.startswith(
        "GPUs are free (3 of 4 on n1), nvme is not: 20 of 100 free, it asks for 40"
    )
    assert scene.follower._forecasts["9"].start_p50 != pytest.approx(scene.now, abs=60.0)
    scene.look(hog)
    eta: dict[str, Any] = {"options": ["--gres=gpu:1,nvme:400", "-p", "main"], "user": "ada"}
    (closed,) = scene.follower.answer(ETA, eta)["closed"]
    assert closed["why"] == "has no nodes that suit, were they empty"
    eta["options"][0] = "--gres=gpu:1,nvme:40"
    (tried,) = scene.follower.answer(ETA, eta)["tried"]
    assert tried["reason"] == "Resources"


def test_of_two_nodes_the_closed_one_is_named_with_its_administrators_words(scene: Scene) -> None:
    first, second = scene.slurm.has
    closed = replace(first, open=False, state="IDLE+DRAIN", reason="vendor case")
    scene.slurm.has = [closed, second]
    asked = waits(scene, gpus=4, num_nodes=2, max_nodes=2, cpus=2, reason="Resources")
    scene.restart()
    assert why(scene, asked) == (
        'it asks for 2 nodes, and 1 (n2) has enough free; n1 is drained ("vendor case").'
    )
    assert scene.follower._forecasts["9"].why_not == WhyNot.CLOSED
    (n1, n2) = scene.follower.answer(NODES, {"job_id": "9"})["nodes"]
    assert (n1["shut"], n2["shut"], n2["lacks"]) == ('drained ("vendor case")', "", [])
    # of one node: it is asked for by name
    named = waits(scene, req_nodes=("n1",), reason="ReqNodeNotAvail")
    assert why(scene, named).endswith('n1 is drained ("vendor case").')
    assert "scontrol update jobid=9 reqnodelist=" in commands(scene)


def test_a_constraint_that_no_node_satisfies_any_more_is_named(scene: Scene) -> None:
    with_it, other = (replace(node, features=("ib",)) for node in scene.slurm.has)
    scene.slurm.has = [with_it, other]
    scene.restart()
    said = why(scene, waits(scene, features="spotted", reason="BadConstraints", priority=0))
    assert said == (
        "no node of its partition has what --constraint=spotted asks for; change it or cancel it."
    )
    assert "constraint" not in why(scene, waits(scene, features="ib", reason="BadConstraints"))


def test_whole_nodes_are_short_where_others_run(scene: Scene) -> None:
    both = (runs(scene, 1, "n1", cpus=1), runs(scene, 2, "n2", cpus=1))
    text = why(scene, *both, waits(scene, exclusive=True))
    assert text.startswith("GPUs are free (4 of 4 on n1, 4 of 4 on n2), it asks for a whole node")


def test_a_time_limit_that_ends_before_the_maintenance_is_tried(scene: Scene) -> None:
    begins, ends = int(scene.now) + 7200, int(scene.now) + 20_000
    scene.slurm.says["scontrol show reservation"] = (
        f"ReservationName=m StartTime={begins} EndTime={ends} Nodes=n[1-2] Flags=MAINT"
    )
    scene.restart()
    asked = waits(scene, time_limit_s=36 * 3600.0, reason="ReqNodeNotAvail")
    assert "reservation m has n1, n2" in why(scene, asked)
    (minutes,) = [int(c.split("timelimit=")[1]) for c in commands(scene) if "timelimit" in c][:1]
    assert 100 <= minutes <= 118
    tried = changes_tried(scene)
    assert [bool(one["costs"]) for one in tried] == sorted(bool(one["costs"]) for one in tried)
    (shorter,) = [one for one in tried if one["command"].endswith(f"timelimit={minutes}")]
    assert shorter["assumed"] == "its work is done within that limit"


@pytest.mark.parametrize(
    "closed", ["AllowAccounts=vip", "AllowQos=vip", "DenyQos=lab", "RootOnly=YES"]
)
def test_a_partition_that_does_not_take_the_job_is_not_proposed(scene: Scene, closed: str) -> None:
    scene.slurm.has = [replace(node, partitions=("main", "vip")) for node in scene.slurm.has]
    scene.slurm.says["scontrol -a show partition"] = (
        "PartitionName=main Nodes=n[1-2] State=UP MaxTime=01:00:00\n"
        f"PartitionName=vip Nodes=n[1-2] State=UP {closed}"
    )
    scene.restart()
    asked = waits(scene, time_limit_s=7200.0, reason="PartitionTimeLimit", account="a", qos="lab")
    assert "or another partition" not in why(scene, asked)
    scene.slurm.says["scontrol -a show partition"] += "\nPartitionName=vip Nodes=n[1-2] State=UP"
    scene.restart()
    assert why(scene, asked).endswith("or another partition (vip).")


def test_a_part_of_a_heterogeneous_job_that_fits_waits_for_the_other(scene: Scene) -> None:
    """In partitions that share no node they were never foreseen to start."""
    first, second = scene.slurm.has
    scene.slurm.has = [first, replace(second, partitions=("mig",))]
    scene.slurm.says["scontrol -a show partition"] = (
        "PartitionName=main Nodes=n1 State=UP\nPartitionName=mig Nodes=n2 State=UP"
    )
    parts = [waits(scene, "9+0", gpus=4), waits(scene, "9+1", gpus=4, partition="mig")]
    text = why(scene, runs(scene, 1, "n1", gpus=1, time_limit_s=3600.0), *parts, job_id="9+1")
    assert text == (
        "n2 has enough free for this part; it starts together with 1 other part of its job."
    )
    for part in ("9+0", "9+1"):
        assert scene.follower._forecasts[part].start_p50 is not None


def test_what_waits_behind_a_limit_where_the_site_stops_there_has_no_forecast(scene: Scene) -> None:
    word = "SchedulerParameters     = assoc_limit_stop,bf_interval=30"
    limited = waits(scene, 8, reason="AssocGrpGRES", priority=2000)
    behind = waits(scene, reason="Priority", priority=10)
    for stops in (False, True):
        scene.slurm.says[CONFIG] = f"{SAYS[CONFIG]}\n{word * stops}"
        scene.restart()
        text = why(scene, limited, behind)
        assert ("assoc_limit_stop makes all jobs of lower priority" in text) is stops
        assert ("9" in scene.follower._withheld) is stops
        (place,) = scene.follower.reasons["9"].places
        assert place.before == stops  # the one that stops it is before it in line
        assert bool(commands(scene)) <= (not stops)
    assert scene.follower._not_modelled == {"SchedulerParameters=assoc_limit_stop": 2}


def test_a_start_at_once_that_slurm_passed_over_is_not_foreseen(scene: Scene) -> None:
    """Something keeps it that is not known here: Slurm's own plan is hours away."""
    job = waits(scene, start=scene.now + 5 * 3600.0, submit=NOW - 900, eligible=NOW - 900)
    for looked_ago, against in ((5.0, True), (5000.0, False)):
        scene.slurm.says["sdiag"] = f"Last cycle when: Mon Sep 21 ({int(scene.now - looked_ago)})"
        scene.restart()
        scene.look(job)
        assert ("9" in scene.follower._withheld) is against
        sooner = scene.follower.answer(TRIED, {"job_id": "9"})
        assert (sooner["as_it_is"]["start_p50"] is None) is against
    # a job has ended since: the next look may start it
    scene.slurm.says["sdiag"] = f"Last cycle when: Mon Sep 21 ({int(scene.now)})"
    scene.restart()
    scene.look(job, scene.job(1, "COMPLETED", start=NOW - 50, end=scene.now))
    assert "9" not in scene.follower._withheld


def test_what_slurm_does_not_show_of_a_limit_can_be_written_as_json() -> None:
    """An infinite number in one job's reason failed the whole look, for everybody."""
    hit = Hit("QOSGrpGRESMinutes", "QOS limited", "GrpTRESMins gres/gpu", 100.0, inf, 60.0)
    shown = _limit(hit)
    assert json.loads(json.dumps(asdict(shown), allow_nan=False))["used"] is None
    assert _limit(replace(hit, used=40.0)).used == 40.0


def test_gpus_of_a_node_whose_cpus_are_taken_are_free(scene: Scene) -> None:
    only_n1(scene)
    text = why(scene, runs(scene, 1, "n1", cpus=8), waits(scene))
    assert text.startswith("GPUs are free (4 of 4 on n1), CPUs are not: 0 of 8 free, it asks for 1")


def test_a_run_that_has_its_node_to_itself_has_its_gpus_too(scene: Scene) -> None:
    only_n1(scene)
    text = why(scene, runs(scene, 1, "n1", cpus=8, exclusive=True), waits(scene))
    assert text.startswith("on n1 GPUs are short: 0 of 4 free")


@pytest.mark.parametrize(("jobs", "words"), [(1, "1 job runs there"), (2, "2 jobs run there")])
def test_a_whole_node_that_others_use_is_said_without_free_gpus_that_are_none(
    scene: Scene, jobs: int, words: str
) -> None:
    only_n1(scene)
    hogs = [runs(scene, n, "n1", gpus=0, cpus=1) for n in range(2, jobs + 1)]
    whole = runs(scene, 1, "n1", gpus=4, cpus=1)
    text = why(scene, whole, *hogs, waits(scene, exclusive=True))
    assert text.startswith(f"on n1 it asks for a whole node, and {words}")


def test_cpus_that_a_partition_keeps_for_others_are_named(scene: Scene) -> None:
    only_n1(scene)
    scene.slurm.says["scontrol -a show partition"] += " MaxCPUsPerNode=4"
    scene.restart()
    text = why(scene, runs(scene, 1, "n1", cpus=4), waits(scene))
    assert text == (
        "GPUs are free (4 of 4 on n1), CPUs that partition main gives of a node (MaxCPUsPerNode) "
        "are not: 0 of 4 free, it asks for 1."
    )


@pytest.mark.parametrize("given_out", ["CR_Core_Memory", "CR_Core"])
def test_all_memory_of_a_node_is_asked_for_by_mem_0(scene: Scene, given_out: str) -> None:
    only_n1(scene)
    scene.slurm.says[CONFIG] = f"{SAYS[CONFIG]}\nSelectTypeParameters = {given_out}"
    scene.restart()
    counted = (("cpu", 1.0), ("mem", 125 * GIB), ("gres/gpu", 1.0))
    text = why(scene, runs(scene, 1, "n1", gpus=1, memory=GIB), waits(scene, tres=counted))
    named = "memory is not: 124 GiB of 125 GiB free, it asks for 125 GiB" in text
    assert named == (given_out == "CR_Core_Memory")


def test_a_crude_start_is_not_before_the_end_of_a_reservation_in_the_way(scene: Scene) -> None:
    only_n1(scene)
    begins, ends = int(NOW + 3600), int(NOW + 5 * 3600)
    scene.slurm.says["scontrol show reservation"] = (
        f"ReservationName=course StartTime={begins} EndTime={ends} Nodes=n1 Users=root Flags=\n"
    )
    scene.restart()
    asked = waits(scene, time_limit_s=4 * 3600.0, reason="ReqNodeNotAvail, May be reserved")
    text = why(scene, asked)
    assert "reservation course has n1" in text
    outlook = scene.follower._last[0].core.policy.outlook
    assert outlook is not None
    assert outlook.kept_until("9", scene.now) == ends


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("job requeued in held state", "`scontrol release 9` lets it go, by whoever held it"),
        ("launch failed requeued held", "`scontrol release 9` lets it go once the node is mended"),
    ],
)
def test_a_job_that_slurm_held_says_how_it_is_let_go(scene: Scene, code: str, words: str) -> None:
    assert words in why(scene, waits(scene, priority=0, reason=code))


def test_singleton_is_said_in_words(scene: Scene) -> None:
    text = why(scene, waits(scene, reason="Dependency", dependency="singleton(unfulfilled)"))
    assert text.startswith("it waits for every earlier job of its user with the same name to end")


TRIAL = "sbatch: Job 7 to start at {at} using 1 processors on nodes n1 in partition main"


def _eta(start: float | None, reason: str = "") -> Eta:
    one = Tried(start, start, 4, reason=reason, partition="main", why="x")
    other = replace(one, partition="long")
    return Eta(NOW, [one, other], asked=["main"])


@pytest.mark.parametrize(
    ("start", "said", "words"),
    [
        (NOW, TRIAL.format(at=int(NOW + 7200)), "at the latest: what keeps it is not known"),
        (NOW, TRIAL.format(at=f"{int(NOW + 7200)} a"), "at the latest: what keeps it"),  # 24.11
        (NOW, TRIAL.format(at=int(NOW)), ""),
        (NOW, TRIAL.format(at=int(NOW + 1800)), ""),  # others wait in its partition
        (NOW + 600, TRIAL.format(at=int(NOW + 7200)), ""),  # limits end later than jobs
        (None, TRIAL.format(at=int(NOW)), "what was found against it is not so"),
        (None, TRIAL.format(at=int(NOW + 7200)), ""),
        (NOW, "allocation failure: Requested node configuration is not available", "refuses it"),
        (None, "allocation failure: Requested node configuration is not available", ""),
        (NOW, TRIAL.format(at=int(NOW + 7200)).replace("main", "long"), ""),
        (NOW, "sbatch: error: what nobody knows", ""),
    ],
)
def test_what_sbatch_test_only_contradicts_is_withdrawn(
    start: float | None, said: str, words: str
) -> None:
    before = _eta(start)
    found = against_trial(before, Verdict.of(said), lambda _: 1800.0)
    assert found.tried[1] == before.tried[1]
    if not words:
        assert found == before
        return
    assert words in found.tried[0].why
    assert (found.tried[0].start_p50, found.tried[0].reason) == (None, "")


def test_a_job_that_waits_in_a_partition_without_gpus_does_not_end_a_look() -> None:
    scene = twin(None)
    plain = replace(scene.slurm.has[1], gpus=0, types=(), partitions=("plain",))
    scene.slurm.has = [scene.slurm.has[0], plain]
    shown = "PartitionName=main Nodes=n1 State=UP\nPartitionName=plain Nodes=n2 State=UP"
    scene.slurm.says["scontrol -a show partition"] = shown
    of = {"partition": "plain", "gpus": 0, "cpus": 8, "min_cpus": 8, "time_limit_s": 3600.0}
    runs = scene.job(1, "RUNNING", start=NOW, nodes=("n2",), **of)
    scene.look(runs, scene.job(2, reason="Resources", **of), scene.job(3, reason="Priority", **of))
    assert {scene.follower.reasons[j].code for j in ("2", "3")} == {"Resources", "Priority"}
