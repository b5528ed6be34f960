"""A site from its own files, without a Slurm that runs: slurm.conf and `sacctmgr dump`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.slurm.generated import generate
from pipeline.app import app
from pipeline.errors import UserError
from pipeline.replay.empty import eta_of
from pipeline.replay.printed import Printed, read_printed
from pipeline.replay.site import DumpOptions, read_site
from scheduler.slurm.twin.site import Limits, Partition
from tests.pipeline.test_replay_given import HEADER, ran, waits

MADE = generate(302)
CONF = "\n".join(["ClusterName=made", *MADE.own.lines([1] * MADE.own.nodes)])
DUMP = """# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
Cluster - 'made':Fairshare=1:QOS='high,limited,normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'chem':Description='chem':Organization='chem':Fairshare=10:GrpTRES=cpu=24:MaxJobs=3
Parent - 'chem'
User - 'irc':Partition='chemp':DefaultAccount='chem':Fairshare=1
User - 'news':DefaultAccount='chem':DefaultQOS='limited':Fairshare=10:MaxTRESPerJob=gres/gpu=2
Account - 'lab':Description='lab':Organization='chem':Fairshare=5:DefaultQOS='high'
Parent - 'lab'
User - 'anna':DefaultAccount='lab':Fairshare=1:GrpTRES=cpu=6
"""


def given(folder: Path, **files: str) -> Printed:
    for name, text in files.items():
        (folder / name).write_text(text)
    return read_printed([folder / name for name in files])


def test_a_generated_site_is_what_its_slurm_conf_says(tmp_path: Path) -> None:
    found = given(tmp_path, conf=CONF, gres="NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]")
    assert [(node.name, node.cpus, node.types, node.weight) for node in found.nodes] == [
        ("n1", 32, (("rtx_6000_ada", 2),), 1), ("n2", 32, (("v100", 1),), 1),
        ("n3", 16, (("h100", 1),), 5), ("n4", 8, (("v100", 4),), 1), ("n5", 16, (("v100", 4),), 50),
    ]  # fmt: skip
    assert found.nodes[0].partitions == ("main", "long", "zzroot")
    assert found.nodes[2].features == ("hopper", "big")
    main, long, root, *_ = found.partitions
    tres = {"cpu": 104, "mem": 288_000, "node": 5, "billing": 104, "gres/gpu": 12}
    assert main == Partition(
        "main", frozenset(f"n{n}" for n in range(1, 6)), 5, 100, 3600.0, 600.0, default=True,
        tres={**tres, "gres/gpu:h100": 1},
    )  # fmt: skip
    assert long.defaults == {"DefMemPerGPU": 6000.0, "DefCpuPerGPU": 2.0}
    assert root.root_only
    assert found.licences == {"matlab": 2, "ansys": 4}
    assert found.config["PriorityWeightFairShare"] == "50000"  # slurm.conf: Fairshare


def test_what_slurm_conf_says_by_default_and_elsewhere_counts(tmp_path: Path) -> None:
    nodes = (
        "NodeName=DEFAULT Sockets=2 corespersocket=8 \\\n  RealMemory=1000 # each\nNodeName=c[1-2]"
    )
    (tmp_path / "nodes.conf").write_text(nodes)
    conf = "ClusterName=a\nInclude nodes.conf\nPreemptMode=SUSPEND,GANG\n"
    conf += "PartitionName=DEFAULT MaxTime=10\nPartitionName=all Nodes=ALL Shared=EXCLUSIVE"
    (part,) = given(tmp_path, conf=conf).partitions
    assert (part.nodes, part.max_time_s, part.exclusive) == ({"c1", "c2"}, 600.0, True)
    assert part.tres == {"cpu": 32, "mem": 2000, "node": 2, "billing": 32}
    for wrong in (conf.replace("nodes.conf", "gone.conf"), conf.replace("ALL", "set1")):
        with pytest.raises(UserError, match=r"gone.conf|set1"):
            given(tmp_path, conf=wrong)


def test_cores_that_a_node_keeps_for_the_system_are_no_jobs(tmp_path: Path) -> None:
    """Slurm refuses a job of all 56 CPUs; it was to start at once."""
    conf = "ClusterName=a\nNodeName=n1 Sockets=2 CoresPerSocket=28 CoreSpecCount=2\n"
    (node,) = given(tmp_path, conf=f"{conf}PartitionName=p Nodes=n1").nodes
    assert node.cpus == 54


def test_what_no_site_has_is_refused_in_a_line(tmp_path: Path) -> None:
    """Files that include each other, and more GPUs than any node has."""
    with pytest.raises(UserError, match="include each other"):
        given(tmp_path, conf="ClusterName=a\nInclude conf\n")
    many = "ClusterName=a\nNodeName=n[1-2] Gres=gpu:99999999999\nPartitionName=p Nodes=ALL"
    (node, _) = given(tmp_path, conf=many).nodes
    assert (node.gpus, node.fault) == (0, "Gres 'gpu:99999999999'")


def test_accounts_are_those_of_a_dump(tmp_path: Path) -> None:
    """Users have what their accounts have, but for limits on a group."""
    found = given(tmp_path, dump=DUMP).assocs
    assert {key: one.limits for key, one in found.items() if one.limits != Limits()} == {
        ("chem", ""): Limits(grp_tres={"cpu": 24}, max_jobs=3),
        ("chem", "irc|chemp"): Limits(max_jobs=3),
        ("chem", "news"): Limits(max_jobs=3, max_tres={"gres/gpu": 2}),
        ("lab", ""): Limits(max_jobs=3),
        ("lab", "anna"): Limits(max_jobs=3, grp_tres={"cpu": 6}),
    }
    assert (found["lab", ""].parent, found["lab", ""].shares) == ("chem", 5)
    assert found["chem", "news"].default_qos == "limited"
    assert found["lab", "anna"].default_qos == "high"
    assert found["lab", "anna"].qos == {"high", "limited", "normal"}


def test_a_site_of_files_is_replayed_with_its_jobs_without_gpus(tmp_path: Path) -> None:
    """Two jobs of four CPUs, of which a user may have six; without the dump, both at once."""
    jobs = [
        ran("1", 0, 0, 300, "cpu=4,mem=1G", partition="main"),
        ran("2", 10, 10, 300, "cpu=4,mem=1G,gres/gpu=1", partition="main", reason="Priority"),
    ]
    dump = tmp_path / "sacct.txt"
    dump.write_text("\n".join([HEADER, *jobs]) + "\n")
    found = []
    for number, files in enumerate(({"conf": CONF}, {"conf": CONF, "accounts": DUMP})):
        given(tmp_path, **files)
        options = DumpOptions(printed=[tmp_path / name for name in files], cpu_jobs=True)
        found.append(waits(read_site(dump, tmp_path / f"scratch{number}", options))["2"])
        paths = [word for name in files for word in ("--site", str(tmp_path / name))]
        simulate = ["simulate", "--trace", str(dump), *paths, "--json"]
        done = CliRunner().invoke(app, simulate)
        assert done.exit_code == 0, done.output
        simulated = json.loads(done.output)
        assert (simulated["policy"], simulated["jobs"]) == ("slurm", 2)
        assert (2 * simulated["avg_queue_s"] > 150) == bool(number)
    assert found[0] < 30 < 150 < found[1]  # seeds move durations
    refused = CliRunner().invoke(app, [*simulate, "--compress=2"])
    assert "leave out --compress" in str(refused.exception)
    run = tmp_path / "run"
    assert CliRunner().invoke(app, [*simulate, "--out", str(run)]).exit_code == 0
    asked = ["explain", "2", "--run", str(run)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    unanswered = CliRunner().invoke(app, [*asked, "--counterfactuals"])
    assert (
        "site of Slurm's own files (--site), which is not played again"
        in str(unanswered.exception) + unanswered.output
    )


@pytest.mark.parametrize("cpu_jobs", [None, True])
def test_a_dump_without_gpus_is_refused_with_what_is_in_it(
    tmp_path: Path, cpu_jobs: bool | None
) -> None:
    given(tmp_path, conf=CONF)
    dump = tmp_path / "sacct.txt"
    dump.write_text(f"{HEADER}\n{ran('1', 0, 0, 300, 'cpu=4,mem=1G', partition='main')}\n")
    options = DumpOptions(printed=[tmp_path / "conf"], cpu_jobs=cpu_jobs)
    with pytest.raises(UserError, match=r"no job with GPUs.* its 1 job without GPUs"):
        read_site(dump, tmp_path / "scratch", options)


def test_eta_of_a_site_of_files_says_which_partitions_take_a_job(tmp_path: Path) -> None:
    given(tmp_path, conf=CONF, dump=DUMP)
    files = [word for name in ("conf", "dump") for word in ("--site", str(tmp_path / name))]

    def told(*options: str) -> list[str]:
        words = ["eta", *files, "--user", "news", "--", "--time=30", *options]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return [" ".join(line.split()) for line in done.output.splitlines()]

    assert told("--gpus=h100:1")[1:] == [
        "main starts at once",
        "Pellucid: its own policy, which counts GPUs but no CPUs or memory, would start it now.",
        "Not in long: it has no nodes that suit, were they empty.",
        "Not in zzroot: it takes jobs of root only.",
        "Not in chemp: it has no nodes that suit, were they empty.",
    ]
    dump = DUMP.replace("'news':DefaultAccount='chem'", "'news':DefaultAccount='lab'")
    given(tmp_path, dump=f"{dump}User - 'news':DefaultAccount='lab':Fairshare=1\n")
    assert "Not in chemp: it does not take account lab." in told("--gpus=1", "--mem=1")
    assert not any("take account" in line for line in told("--gpus=1", "--account=chem"))
    with pytest.raises(UserError, match="nobody has no account"):
        eta_of([tmp_path / "conf", tmp_path / "dump"], ["--gpus=1"], "nobody")
