"""The savings report, on dumps rendered from schedules whose rule is known."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.replay import SAME, venus
from benchmarks.sacct import render as render_dump
from features.job import Job
from pipeline.app import app
from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.replay.claims import Saving
from pipeline.replay.figures import Figures, misfit, over_seeds
from pipeline.replay.page import render
from pipeline.replay.runs import VARIANTS, replay
from pipeline.replay.site import DumpOptions, Site, read_site
from pipeline.report.interactive import scripts
from pipeline.traces import read_dataset
from pipeline.worlds.inferred import expanded
from pipeline.worlds.shape import cluster_of, from_nodes, nodes_listed
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.explain.words import duration
from scheduler.policies.easy import Easy
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import Work

PLAIN = tuple(v for v in VARIANTS if v.key in ("fifo", "easy", "pellucid"))
T0 = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
SHAPE = ClusterSpec({"short": 2, "long": 3}, 4)


def dump(path: Path, jobs: int = 240, seed: int = 1) -> Path:
    """Weeks of a small site that runs EASY backfill, as its sacct would tell them."""
    rng = random.Random(seed)
    submitted, work, now = [], {}, float(T0)
    for i in range(jobs):
        now += rng.randint(1, 900)
        gpus = rng.choice([1, 1, 1, 2, 4, 8])
        duration = rng.choice([60, 300, 1800, 7200])
        limit = float(duration * rng.choice([1, 2, 5]))
        submitted.append(
            Job(str(i), now, gpus, f"user{i % 7}", rng.choice(["short", "long"]), f"run{i % 5}",
                time_limit_s=limit)
        )  # fmt: skip
        work[str(i)] = Work(duration)
    engine = Engine(Core(Cluster(SHAPE), Easy()), submitted, work, SimulatedContention())
    render_dump(path, engine.run().jobs, work, SHAPE.gpus_per_node)
    with path.open("a") as file:
        file.write(f"{jobs}.batch|batch||short|||||00:00:01||COMPLETED|0:0|1||\n")
    return path


def own(html: str) -> str:
    """A page without the scripts that every page has."""
    return html.replace(scripts(True).figures, "")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dump(tmp_path_factory.mktemp("dump") / "dump.txt")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes") / "nodes.txt"
    blocks = []
    for i, partition in enumerate(["short"] * 2 + ["long"] * 3):
        blocks.append(
            f"NodeName=n{i} Arch=x86_64 CoresPerSocket=16\n   State=IDLE Gres=gpu:a100:4(S:0-1)\n"
            f"   Partitions={partition}{',all' if i == 0 else ''}\n"
        )
    path.write_text("\n".join(blocks))
    return path


def test_the_engine_finds_the_recorded_schedule_of_a_site_that_runs_its_rule(
    told: Path, nodes: Path, tmp_path: Path
) -> None:
    site = read_site(told, tmp_path, DumpOptions(nodes=nodes))
    assert site.workload.cluster.vcs == SHAPE.vcs
    assert site.counts["replayed"] == 240
    assert site.counts["steps"] == 1
    variants = [variant for variant in VARIANTS if variant.key != "slurm"]
    found = replay(site, 2, variants=variants)
    back = found["backtest"]
    assert back["jobs"] == 240
    assert back["within_10_min"] == 1.0
    assert back["avg_wait_replayed_s"] == pytest.approx(back["avg_wait_recorded_s"], abs=2.0)
    assert [v["key"] for v in found["variants"]] == [v.key for v in variants]
    waits = {v["key"]: v["avg_wait_s"] for v in found["variants"]}
    assert waits["pellucid"] < waits["fifo"]
    assert waits["borrow"] < waits["pellucid"]
    for rows, names in (("by_vc", 2), ("by_user", 7)):
        assert len(found[rows]) == names
        jobs = sum(row["jobs"] for row in found[rows])
        mean = sum(row["jobs"] * row["recorded_s"] for row in found[rows]) / jobs
        assert mean == pytest.approx(found["recorded"]["avg_wait_s"])
    html = render(site, found)
    assert "PACKING HERE IS AN ASSUMPTION" in html
    assert "http://" not in own(html)
    assert "https://" not in own(html)
    (text,) = re.findall(r'id="columns">(.*?)</script>', html)
    drawn = json.loads(text)
    assert [one["name"] for one in drawn["results"]] == ["recorded", *(v.short for v in variants)]
    assert [one["colour"] for one in drawn["results"]][:4] == [7, 5, 6, 0]
    assert drawn["results"][0]["wait"] == [round(s) for s in site.judged["wait_s"].to_pylist()]


def test_the_shape_is_inferred_from_what_ran_at_once(told: Path, tmp_path: Path) -> None:
    site = read_site(told, tmp_path)
    assert site.workload.cluster.gpus_per_node == 4
    assert all(0 < n <= SHAPE.vcs[vc] for vc, n in site.workload.cluster.vcs.items())
    assert "inferred" in site.shape
    _, simulated, said = cluster_of(read_dataset(tmp_path / "dataset"))
    assert simulated == site.workload.cluster
    assert said[0].startswith(f"No --cluster: {site.shape} (nodes by virtual cluster: ")


def test_nodes_named_in_the_dump_are_counted(told: Path, tmp_path: Path) -> None:
    named = tmp_path / "named.txt"
    lines = told.read_text().splitlines()
    hosts = {"short": "s[01-02]", "long": "l[1,3-4]-ib"}
    named.write_text(
        "\n".join(
            [lines[0] + "|NodeList"] + [f"{line}|{hosts[line.split('|')[3]]}" for line in lines[1:]]
        )
    )
    site = read_site(named, tmp_path / "d")
    assert site.workload.cluster.vcs == SHAPE.vcs
    table, simulated, _ = cluster_of(read_dataset(tmp_path / "d/dataset"))
    assert simulated == site.workload.cluster
    assert Counter(table["vc"].to_pylist()) == Counter(job.vc for job in site.workload.jobs)
    named.write_text(named.read_text().replace("l[1,3-4]-ib", "s[02-04]"))
    site = read_site(named, tmp_path / "e")
    assert list(site.workload.cluster.vcs) == ["long+short"]
    assert cluster_of(read_dataset(tmp_path / "e/dataset"))[1] == site.workload.cluster


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("n1", ["n1"]),
        ("n[08-10],login", ["n08", "n09", "n10", "login"]),
        ("a[1,3]-ib,b2", ["a1-ib", "a3-ib", "b2"]),
        ("None assigned", []),
        ("", []),
        ("n[1-99999999]", []),
        ("n[x-2]", []),
    ],
)
def test_host_lists_are_read_as_slurm_writes_them(names: str, found: list[str]) -> None:
    assert list(expanded(names)) == found


@pytest.mark.parametrize("listed", [False, True], ids=["inferred", "listed"])
def test_nothing_of_a_person_is_left_in_an_anonymous_report(
    listed: bool, told: Path, nodes: Path, tmp_path: Path
) -> None:
    site = read_site(told, tmp_path, DumpOptions(nodes=nodes if listed else None, anonymise=True))
    found = replay(site, 1, variants=PLAIN)
    text = own(render(site, found)) + json.dumps(found)
    for name in ("user1", "run1", "short", "long_", "dump.txt"):
        assert name not in text.replace("shorter", "").replace("longer", "")
    if listed:
        assert sorted(site.workload.cluster.vcs.values()) == sorted(SHAPE.vcs.values())


def test_a_policy_and_its_settings_are_named_or_written_in_the_cluster_file(
    tmp_path: Path,
) -> None:
    few = dump(tmp_path / "few.txt", jobs=40)

    def answered(*options: str) -> dict[str, Any]:
        out = ["--out", str(tmp_path / "page.html"), "--seeds", "1", "--json"]
        result = CliRunner().invoke(app, ["replay", "--sacct", str(few), *out, *options])
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.stdout))

    def replayed(*options: str) -> list[dict[str, Any]]:
        return list(answered(*options)["variants"])

    cluster = tmp_path / "cluster.yaml"
    shape = {"gpus_per_node": SHAPE.gpus_per_node, "vcs": dict(SHAPE.vcs)}
    cluster.write_text(json.dumps({**shape, "policy": {"name": "sjf"}}))
    *ours, last = replayed("--cluster", str(cluster))
    assert [v["key"] for v in ours] == [v.key for v in VARIANTS]
    assert (last["key"], last["title"]) == ("sjf", "policy sjf")
    named = "reproductions.baselines.sjf:Sjf"
    assert replayed("--policy", named)[-1]["title"] == f"policy {named}"
    plain, bounded = (
        answered("--cluster", str(cluster), "--policy", "pellucid", "--set", f"max_wait_s={bound}")
        for bound in ("172800", "60")
    )
    assert [v["key"] for v in plain["variants"]] == [v.key for v in VARIANTS]
    assert bounded["variants"] != plain["variants"]
    assert "of the jobs waited for longer than the bound on waiting" in bounded["bound"]
    assert plain["bound"] == ""
    for wrong, said in (
        (("--set", "nothing=1"), "nothing: no such setting"),
        (("--nodes", str(few)), "names no node"),
    ):
        result = CliRunner().invoke(app, ["replay", "--sacct", str(few), *wrong])
        assert said in str(result.exception)


def test_intervals_are_those_of_students_t_over_paired_differences() -> None:
    def cells(*waits: float) -> list[Figures]:
        names = ("avg_wait_s", "p99_wait_s", "avg_jct_s", "longest_wait_s")
        return [{"unfinished": 0, **dict.fromkeys(names, wait)} for wait in waits]

    told = over_seeds(cells(100, 120), cells(460, 490), 36, cells(110, 120))
    assert told["avg_wait_s"] == 110
    assert told["avg_wait_s_ci95"] == pytest.approx(12.706 * 10, rel=1e-4)
    assert told["saved_hours"] == pytest.approx((360 + 370) / 2 * 36 / 3600)
    assert told["saved_hours_ci95"] == pytest.approx(12.706 * 5 * 36 / 3600, rel=1e-4)
    assert told["added_hours"] == pytest.approx(5 * 36 / 3600)
    assert over_seeds(cells(1), cells(2), 1)["saved_hours_ci95"] is None


def test_the_page_says_which_way_it_went_and_when_not_to_believe_it(
    told: Path, nodes: Path, tmp_path: Path
) -> None:
    site = read_site(told, tmp_path, DumpOptions(nodes=nodes))
    found = replay(site, 2, variants=VARIANTS[2:5])
    assert found["against"] == "easy"
    assert not found["misfit"]

    def text(low: float, high: float, **changes: object) -> str:
        saving = Saving(low_s=low, high_s=high, shorter=12, draws=16)
        whole, *parts = found["claims"]
        known = {**whole, "savings": {"pellucid": {**asdict(saving), "which": saving.which}}}
        html = render(site, {**found, "claims": [known, *parts], **changes})
        return " ".join(html.split("<body", 1)[1].split())

    jobs = found["claims"][0]["jobs"]
    hours = f"{60 * jobs / 3600:,.0f} to {120 * jobs / 3600:,.0f} job-hours saved"
    assert "From 2026-03-02 to 2026-03-03 people waited" in text(60, 120)
    less = text(60, 120)
    one, two = duration(60), duration(120)
    assert f"waited {one} to {two} less: {hours} (90" in less
    assert "shorter than Slurm's own schedule in 12 of 16 replays" in less
    assert f"would have waited {one} to {two} longer" in text(-120, -60)
    assert f"is open after these replays: between {two} less and {one} more" in text(-60, 120)
    assert "job-hours of waiting less than Pellucid without it" in less
    assert "NO SAVING IS STATED" not in less
    assert less.index("Can the replay be trusted?") < less.index(
        "job-hours of waiting saved against"
    )
    far = {**found["backtest"], "avg_wait_replayed_s": 9e4}
    doubted = text(60, 120, backtest=far, misfit=misfit(far))
    assert misfit(far)[0].partition("waits")[2] in doubted
    assert "NO SAVING IS STATED" not in doubted
    page = text(60, 120, backtest=far, refused=misfit(far), claims=[])
    assert page.index("NO SAVING IS STATED") < page.index("people waited")
    assert "job-hours saved" not in page
    assert "job-hours of waiting saved" not in page
    # Where no job lasts an hour, nothing is to be told of it.
    assert "over an hour" not in text(60, 120, duration_model={"n": 60.0, "spearman": 0.5})
    assert "Too few jobs" in text(60, 120, duration_model=None)
    assert "not replayed" in text(60, 120, backtest=None, backtests={}, refused=misfit(None))
    gone = [{**row, "pellucid_s": None} for row in found["by_user"]]
    assert "0 of 0 users" in text(60, 120, by_user=gone)


def accounted(site: Site) -> int:
    """Lines of a dump whose fate a site tells."""
    fates = ("steps", "without_gpus", "quarantined", "duplicates", "not_ended", "earlier",
             "too_large", "replayed")  # fmt: skip
    return sum(site.counts[fate] for fate in fates)


def test_a_window_opens_on_a_cluster_as_busy_as_it_was(
    told: Path, nodes: Path, tmp_path: Path
) -> None:
    """Jobs of before still hold their GPUs, so that the back-test holds in the window too."""
    site = read_site(told, tmp_path, DumpOptions(nodes=nodes, last_days=0.5))
    assert site.counts["carried"] > 0
    assert accounted(site) == site.counts["lines"] == 241
    assert len(site.judged) == site.counts["replayed"] < len(site.workload.jobs)
    found = replay(site, 1, variants=PLAIN)
    assert found["recorded"]["jobs"] == found["backtest"]["jobs"] == site.counts["replayed"]
    test = found["backtests"]["easy"]
    assert test["within_10_min"] > 0.9
    assert test["avg_wait_replayed_s"] == pytest.approx(test["avg_wait_recorded_s"], rel=0.1)


def lines_of(folder: Path, *rows: tuple[int, str, str, str, str, str, int]) -> Path:
    """A dump: of each job id, submission, start, end, limit, state and nodes with four GPUs."""
    path = folder / "dump.txt"
    path.write_text(
        "JobID|User|Partition|Submit|Eligible|Start|End|Timelimit|State|NNodes|AllocTRES\n"
        + "".join(
            f"{job}|ada|short|{at}|{at}|{start}|{end}|{lasts}|{state}|{n}|gres/gpu={n * 4}\n"
            for job, at, start, end, lasts, state, n in rows
        )
    )
    return path


def test_what_no_replay_repeats_is_named_where_no_saving_is_stated(
    nodes: Path, tmp_path: Path
) -> None:
    day = "2026-03-02T"
    first = (1, f"{day}08:00:00", f"{day}08:00:00", f"{day}09:00:00", "1-00:00:00", "PREEMPTED", 2)
    late = (2, f"{day}09:00:00", f"{day}10:30:00", f"{day}11:00:00", "01:00:00", "COMPLETED", 1)
    site = read_site(lines_of(tmp_path, first, late), tmp_path / "d", DumpOptions(nodes=nodes))
    misfit = replay(site, 1, variants=PLAIN)["misfit"]
    assert misfit[-1] == "1 run ended by preemption, which no replay repeats."
    assert "on average" in misfit[0]
    at_once = (2, f"{day}09:00:00", f"{day}09:00:00", f"{day}11:00:00", "03:00:00", "COMPLETED", 1)
    again = tmp_path / "again"
    again.mkdir()
    site = read_site(lines_of(again, first, at_once), again / "d", DumpOptions(nodes=nodes))
    assert replay(site, 1, variants=PLAIN)["misfit"] == []


@pytest.mark.parametrize(
    ("limit", "wait_s"),
    [("1-00:00:00", 7200.0), ("00:10:00", 0.0)],
    ids=["runs", "past its limit: accounting missed its end"],
)
def test_a_job_that_still_runs_as_the_dump_ends_holds_its_gpus_and_is_not_judged(
    nodes: Path, tmp_path: Path, limit: str, wait_s: float
) -> None:
    path = lines_of(
        tmp_path,
        (1, "2026-03-02T08:00:00", "2026-03-02T08:00:00", "Unknown", limit, "RUNNING", 2),
        (2, "2026-03-02T09:00:00", "2026-03-02T10:30:00", "2026-03-02T11:00:00", "01:00:00",
         "COMPLETED", 1),
        (3, "2026-03-02T10:30:00", "Unknown", "Unknown", "01:00:00", "PENDING", 1),
    )  # fmt: skip
    site = read_site(path, tmp_path / "d", DumpOptions(nodes=nodes))
    assert site.judged["job_id"].to_pylist() == ["2"]
    assert site.counts["replayed"] == site.counts["lines"] - site.counts["not_ended"] == 1
    found = replay(site, 1, variants=PLAIN)
    assert found["by_job"]["easy"]["wait_s"] == [pytest.approx(wait_s, abs=120.0)]


def test_a_dump_too_large_is_cut_and_says_so(told: Path, nodes: Path, tmp_path: Path) -> None:
    site = read_site(told, tmp_path, DumpOptions(nodes=nodes, most=100))
    assert site.window["cut"]
    assert site.window["of_jobs"] == 240
    assert site.counts["replayed"] <= 100
    html = render(site, replay(site, 1, variants=PLAIN))
    assert "ONLY THE LAST" in html
    assert "MISSING FROM THIS DUMP" in html


def test_the_averages_are_those_of_simulate(shared_data: Path) -> None:
    """On the first 1,000 jobs of Venus; `python -m benchmarks.replay` does the month."""
    found = venus(shared_data, 1_000)
    assert found["replayed"] == found["jobs"] == 1_000
    assert found["backtest"]["within_10_min"] == 1.0
    for policy in SAME:
        assert found[policy]["replay"] == pytest.approx(found[policy]["simulate"], rel=1e-9)


def test_partitions_that_share_nodes_are_one_pool(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    path.write_text(
        "NODELIST PARTITION GRES\n"
        "n[1-2] day* gpu:a100:4(S:0-1)\nn[1-2] week gpu:a100:4(S:0-1)\nn3 week gpu:4\n"
        "n3 all gpu:4\nn4 lone gpu:2\nn5 cpu (null)\n"
    )
    shape = from_nodes(nodes_listed(path), "nodes", ["day", "week", "lone"], str)
    assert shape.spec.vcs == {"day+week": 3, "lone": 1}
    assert shape.spec.gpus == 14
    assert shape.pools["week"] == "day+week"
    assert any("share nodes" in note for note in shape.notes)
    path.write_text(
        "NodeName=n1 Arch=x86_64 Gres=gpu:8(S:0-1) State=IDLE+DRAIN Partitions=day,week\n"
        "NodeName=n2 Arch=x86_64 Gres=(null) State=IDLE Partitions=day\n"
    )
    shape = from_nodes(nodes_listed(path), "nodes", ["day"], str)
    assert shape.spec.vcs == {"day": 1}
    assert any("down or drained" in note for note in shape.notes)


def test_text_that_is_no_listing_of_nodes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    for text in ("", "hello\n", '{"a": 1}\n', "foo bar baz qux\n", "NODELIST PARTITION GRES\n"):
        path.write_text(text)
        with pytest.raises(UserError, match="names no node"):
            nodes_listed(path)
    path.write_text("NodeName is what begins a line\nNodeName= Gres=gpu:8\n")
    with pytest.raises(UserError, match="not as Slurm prints it"):
        nodes_listed(path)
    path.write_text("$ sinfo -N -o '%N %P %G'\nn1 day* gpu:8\nn2 day* (null)\nn3 day lustre:4\n")
    assert [(one.name, one.gpus) for one in nodes_listed(path)] == [("n1", 8), ("n2", 0), ("n3", 0)]


HOSTILE = (
    "", " ", "Unknown", "None", "\0", "\x1b[2J", "=cmd|' /C calc'!A0", "@SUM(1+9)*cmd",
    "<img src=x onerror=alert(1)>", "A" * 70_000, "1" * 400, "-1", "1e999", "NaN",
    "n[1-9999999999]", "2026-03-02T10:00:00+0100", "0001-01-01T00:00:00", "9999-12-31T23:59:59",
    "Mon 10:22", "1772445600", "gres/gpu=999999999999999", "gres/gpu=-1", "gres/gpu",
    "cpu=1,,=,gres/gpu=1",
    "gres/shard=2", "1,5", "02.03.2026 10:00", "1991-01-01T00:00:00", "UNLIMITED", "0",
    "123_4", "123_[1-9%2]", "123+0", "123.0", "\u202egpj.exe", "é", "|", "||||", "\r", "\n",
)  # fmt: skip


# One hostile line each, by what it changes of a good one; what must become of it.
FATES: tuple[tuple[dict[str, bytes], str], ...] = (
    ({"User": b"<script>alert(1)</script>"}, "replayed"),
    ({"User": b"=cmd|' /C calc'!A0", "JobName": b"=1+1"}, "replayed"),
    ({"User": "Jörg".encode(), "JobName": "обучение".encode()}, "replayed"),
    ({"JobName": b"\x1b[2Ja\tb"}, "replayed"),
    ({"JobName": b"a|b|c"}, "replayed"),
    ({"JobName": b"A" * 300_000}, "replayed"),
    ({"JobName": b"a\0b"}, "control_character"),
    ({"JobName": b"a\rb"}, "control_character"),
    ({"User": b"J\xf6rg"}, "replayed"),
    ({"AllocTRES": b"gres/gpu=-1"}, "bad_alloc_tres"),
    ({"AllocTRES": b"gres/gpu=nan"}, "bad_alloc_tres"),
    ({"AllocTRES": b"gres/gpu=1e999"}, "bad_alloc_tres"),
    ({"AllocTRES": b"cpu=4,gres/gpu=1,5"}, "bad_alloc_tres"),
    ({"AllocTRES": b"gres/gpu=999999999"}, "implausible_gpus"),
    ({"AllocTRES": b"cpu=1,gres/shard=2", "ReqTRES": b""}, "no_gpu"),
    ({"NNodes": b"-3"}, "bad_nodes"),
    ({"NNodes": b"1.5"}, "bad_nodes"),
    ({"NNodes": b"2147483647"}, "replayed"),
    ({"Elapsed": b"-1"}, "bad_recorded_duration_s"),
    ({"Timelimit": b"soon"}, "bad_time_limit_s"),
    ({"Timelimit": b"UNLIMITED"}, "replayed"),
    ({"Timelimit": b"999999-00:00:00"}, "implausible_duration"),
    ({"End": b"9999-12-31T23:59:59"}, "implausible_end_time"),
    ({"Start": b"0001-01-01T00:00:00"}, "implausible_start_time"),
    ({"Submit": b"1991-01-01T00:00:00"}, "implausible_wait"),
    ({"Submit": b"2026-02-30T00:00:00"}, "bad_submit_time"),
    ({"Submit": b"02.03.2026 10:00"}, "bad_submit_time"),
    ({"Submit": b"1772445600"}, "bad_submit_time"),
    ({"Submit": b"Unknown"}, "missing_submit_time"),
    ({"End": b"2026-01-01T00:00:00"}, "end_before_start"),
    ({"End": b"Unknown"}, "not_ended"),
    ({"Start": b"Unknown", "End": b"Unknown"}, "not_ended"),
    ({"Eligible": b"Unknown"}, "replayed"),
    ({"State": "ЗАВЕРШЕНО".encode()}, "replayed"),
    ({"JobID": b""}, "missing_job_id"),
    ({"JobID": b"9_4"}, "replayed"),
    ({"JobID": b"9+1"}, "replayed"),
    ({"JobID": b"9_[1-9%2]"}, "replayed"),
    ({"JobID": b"9+1.0"}, "steps"),
    ({"JobID": b"9_4.extern"}, "steps"),
    ({"JobID": b"4", "State": b"FAILED"}, "replayed"),  # its second run, after a requeue
)


def test_each_hostile_line_has_its_own_fate_and_harms_no_other(told: Path, tmp_path: Path) -> None:
    lines = told.read_bytes().split(b"\n")[:61]
    columns = lines[0].decode().split("|")
    expected: Counter[str] = Counter(replayed=60)
    for i, (changes, fate) in enumerate(FATES):
        fields = lines[5].split(b"|")
        fields[0] = b"%d" % (9_000 + i)
        for name, value in changes.items():
            fields[columns.index(name)] = value
        lines.append(b"|".join(fields))
        expected[fate] += 1
    lines += [lines[5], lines[5][:40], b"", b"  ", b"-----|-----"]
    expected.update(duplicates=1, wrong_column_count=2)
    path = tmp_path / "dump.txt"
    path.write_bytes(b"\n".join(lines))
    site = read_site(path, tmp_path / "d")
    found: Counter[str] = Counter(site.quarantined)
    for name in ("replayed", "steps", "not_ended"):
        found[name] = site.counts[name]
    # An equal line stands in quarantine, too, but is told once.
    found["duplicates"], found["no_gpu"] = site.counts["duplicates"], site.counts["without_gpus"]
    assert found == expected
    assert accounted(site) == site.counts["lines"] == len(lines) - 3  # header, two empty ones
    found_json = json.dumps(replay(site, 1, variants=PLAIN), allow_nan=False)
    assert json.loads(found_json)["recorded"]["jobs"] == site.counts["replayed"]


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_dump_holds_is_replayed_or_refused_in_a_line(
    told: Path, tmp_path: Path, data: st.DataObject
) -> None:
    lines = told.read_bytes().split(b"\n")[:40]
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(lines) - 1))
        fields = lines[at].split(b"|")
        kind = data.draw(st.sampled_from(["field", "cut", "bytes", "delimiter", "swap"]))
        if kind == "field":
            place = data.draw(st.integers(0, len(fields) - 1))
            fields[place] = data.draw(st.sampled_from(HOSTILE)).encode()
            lines[at] = b"|".join(fields)
        elif kind == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        elif kind == "bytes":
            lines[at] += data.draw(st.binary(max_size=40))
        elif kind == "delimiter":
            lines[at] = lines[at].replace(b"|", data.draw(st.sampled_from([b",", b"\t", b"||"])))
        else:
            lines[at] = b"|".join(data.draw(st.permutations(fields)))
    with TemporaryDirectory(dir=tmp_path) as folder:
        path = Path(folder) / "dump.txt"
        path.write_bytes(b"\n".join(lines))
        site, refused = None, ""
        try:
            with user_errors():
                site = read_site(path, Path(folder))
        except UserError as error:
            refused = str(error)
        assert "\n" not in refused
        assert len(refused) < 1_000
        if site is not None:
            assert accounted(site) == site.counts["lines"]
            assert len(site.recorded) == len(site.workload.jobs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobID,State,Submit,AllocTRES\n1,COMPLETED,now,\n", "separated by commas"),
        ("JobID\tState\tSubmit\n1\tCOMPLETED\tnow\n", "separated by tabs"),
        ("       JobID    State\n------------ -----\n1  COMPLETED\n", "sacct -P"),
        ("JobID|State|Submit|AllocTRES\n1|COMPLETED|02.03.2026|gres/gpu=1\n", "SLURM_TIME_FORMAT"),
        (
            "JobID|State|Submit|AllocTRES\n1|COMPLETED|2026-03-02T10:00:00|cpu=1\n",
            "no line names gres/gpu",
        ),
        ("JobID|State|AllocTRES\n1|COMPLETED|gres/gpu=1\n", "no column 'Submit'"),
        ("\x1f\x8b\x08\x00", "bars"),
        ("JobID|State|Submit|AllocTRES\n1|RUNNING|2026-03-02T10:00:00|gres/gpu=1\n", "an end"),
        (
            "JobID|State|Submit|Start|End|AllocTRES\n"
            "1|RUNNING|2026-03-02T10:00:00|2026-03-02T10:00:00|Unknown|gres/gpu=1\n",
            "an end",
        ),
    ],
)
def test_what_is_wrong_with_a_dump_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=said), user_errors():
        read_site(path, tmp_path)


def test_several_kinds_of_gpus_in_a_dump_are_said(told: Path, tmp_path: Path) -> None:
    lines = told.read_text().splitlines()
    typed = [
        line.replace("gres/gpu=1,", f"gres/gpu=1,gres/gpu:{kind}=1,")
        for line, kind in zip(lines, ("a100", "h100") * len(lines), strict=False)
    ]
    path = tmp_path / "dump.txt"
    path.write_text("\n".join(typed))
    said = read_site(path, tmp_path / "d").missing
    assert any("2 kinds of GPUs" in line for line in said)


def test_a_hostile_page_is_inert(told: Path, tmp_path: Path) -> None:
    lines = told.read_text().splitlines()
    evil = "<script>alert(1)</script>"
    for at in range(1, 60):
        fields = lines[at].split("|")
        fields[2], fields[3] = f"=1+1{evil}\x1b[31m" + "u" * 5_000, "<b onload=x>"
        lines[at] = "|".join(fields)
    path = tmp_path / "dump.txt"
    path.write_text("\n".join(lines))
    site = read_site(path, tmp_path / "d")
    html = render(site, replay(site, 1, variants=PLAIN))
    assert "<script" not in html.split("<body", 1)[1]
    assert "<b onload" not in html
    assert "\x1b" not in html
    assert "u" * 100 not in html
