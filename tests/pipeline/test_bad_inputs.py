"""Bad inputs of every command: one line that says what is wrong, status 2, nothing half-written.

A table: each row a command with a hole in it, filled by each kind of bad file in turn.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command
from typer.models import TyperPath

from features.plain import plain
from pipeline.app import app
from pipeline.cli import main
from pipeline.errors import UserError
from pipeline.stages.common import read_params
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store

DUMP = "docs/examples/sacct.txt"
SMALL = "pipeline/worlds/clusters/small.yaml"
BAD = (
    "missing",
    "empty",
    "folder",
    "binary",
    "device",
    "latin1",
    "nan",
    "columns",
    "endless",
    "pipe",
    "socket",
    "huge",
    "unreadable",
    "cut",
    "link",
    "vanishing",
    "name\x1b]0;x\x07",
)
# {bad}: the bad input; {trace}: a good dataset; {dump}: one of sacct; {log}: an empty database;
# {job}: a script; {out}: where results would go
COMMANDS = {
    "ingest": "ingest {bad} --out {out}",
    "ingest sacct": "ingest {bad} --format sacct --out {out}",
    "ingest philly": "ingest {bad} --format philly --out {out}",
    "simulate trace": "simulate --trace {bad} --policy fifo --out {out}",
    "simulate cluster": "simulate --trace {trace} --cluster {bad} --policy fifo --out {out}",
    "simulate bundle": "simulate --trace {trace} --bundle {bad} --policy qssf --out {out}",
    "simulate policy": "simulate --trace {trace} --policy {bad} --out {out}",
    "compare trace": "compare --trace {bad} --policies fifo --out {out}",
    "replay": "replay --sacct {bad} --out {out}",
    "explain": "explain 7 --run {bad} --html {out}",
    "report compare": "report --compare {bad} --out {out}",
    "report bundle": "report --bundle {bad} --out {out}",
    "report trace": "report --trace {bad} --out {out}",
    "report metrics": "report --metrics {bad} --out {out}",
    "train": "train --trace {bad} --out {out} --preset fast",
    "train pairs": "train --trace {trace} --pairs {bad} --out {out} --preset fast --test-days 2",
    "train edits": "train --trace {trace} --edits {bad} --out {out} --preset fast",
    "evaluate": "evaluate duration --data {bad}",
    "serve config": "serve --config {bad}",
    "serve cluster": "serve --cluster {bad} --database sqlite:///{out}/db --state-dir {out}",
    "audit": "audit --database sqlite:///{bad} --state-dir {out}",
    "export": "export {out} --database sqlite:///{bad}",
    "token": "token list --database sqlite:///{bad}",
    "replay site": "replay --sacct docs/examples/sacct.txt --site {bad} --out {out}",
    "replay nodes": "replay --sacct docs/examples/sacct.txt --nodes {bad} --out {out}",
    "submit file": "submit --file {bad}",
    "token file": "ps --token-file {bad}",
    "eta script": "eta {bad}",
    "eta site": "eta {job} --site {bad} --user anna",
    "replay cluster": "replay --sacct {dump} --cluster {bad} --out {out}",
    "simulate site": "simulate --trace {dump} --site {bad} --policy fifo --out {out}",
    "compare cluster": "compare --trace {trace} --cluster {bad} --policies fifo --out {out}",
    "compare bundle": "compare --trace {trace} --bundle {bad} --policies qssf --out {out}",
    "compare workload": "compare --workload pollux:{bad} --policies pollux --out {out}",
    "tune trace": "tune --trace {bad}",
    "tune sacct": "tune --sacct {bad}",
    "tune site": "tune --sacct {dump} --site {bad}",
    "tune cluster": "tune --trace {trace} --cluster {bad}",
    "report learning": "report --trace {trace} --learning {bad} --out {out}",
    "served params": "served --log --params {bad} --state-dir {out}",
    "audit since": "audit --database sqlite:///{log} --state-dir {out} --since-head {bad}",
    "audit key": "audit --database sqlite:///{log} --state-dir {out} --head --key {bad}",
    "restore": "restore {bad} --database sqlite:///{out}/db --state-dir {out}",
    "promote bundle": "promote --bundle {bad} --trace {trace} --out {out} --yes --why x",
    "promote params": "promote 1 --params {bad} --trace {trace} --out {out} --yes",
    "train rates": "train --trace {trace} --gpu-rates {bad} --out {out} --preset fast",
    "evaluate trace": "evaluate duration --trace {bad}",
    "evaluate bundle": "evaluate bundle --trace {trace} --bundle {bad}",
    "evaluate run": "evaluate duration --trace {trace} --run {bad}",
    "evaluate profiles": "evaluate packing --profiles {bad}",
    "profile formats": "profile --formats {bad} --device cpu --out {out} -- true",
    "token config": "token list --config {bad}",
    "slurm config": "slurm release-all --config {bad}",
}
# what is not read, is read as another option of these is, or is no bad input; and why
ELSEWHERE = {
    "--out": "written",
    "--html": "written",
    "--keep": "written: tests/scheduler/compute",
    "--state-dir": "written, but for `served`",
    "--folder": "written",
    "--cwd": "the command's own",
    "export out": "written",
    "promote --shadow": "read after the registry, which is not there",
    "promote --trace": "likewise",
    "serve --bundle": "refused in the log: tests/scheduler/service/log/test_bundles.py",
}


def paths(command: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Each option and argument of each command that takes a path."""
    if hasattr(command, "list_commands"):
        for one in command.list_commands(None):
            yield from paths(command.get_command(None, one), f"{name} {one}".strip())
    else:
        for one in command.params:
            if isinstance(one.type, TyperPath):
                yield name, one.name if one.param_type_name == "argument" else one.opts[0]


def test_every_path_that_a_command_takes_is_among_them() -> None:
    given = set[tuple[str, str]]()
    for line in COMMANDS.values():
        words = line.split()
        before = words[words.index("{bad}") - 1] if "{bad}" in words else ""
        given.add((words[0], before if before.startswith("--") else "argument"))
    shared = {"--token-file", "--config"}  # read in one place, for whatever command
    left = {
        (name, option)
        for name, option in paths(get_command(app))
        if option not in ELSEWHERE and f"{name} {option}" not in ELSEWHERE
        if option not in shared
        if (name, option if option.startswith("--") else "argument") not in given
    }
    assert left == set()
    assert shared <= {option for _, option in given}


# a bad value each: what an option is given that it cannot take; behind a bar, what is named
VALUES = (
    "simulate --trace {trace} --seed x",
    "simulate --trace {trace} --compress nan --policy fifo",
    "simulate --trace {trace} --compress 0 --policy fifo",
    "simulate --trace {trace} --compress inf --policy fifo",
    "simulate --trace {trace} --compress 1e300 --policy fifo",
    "simulate --trace {trace} --policy nosuch | nosuch",
    "simulate --trace {trace} --policy fifo --track x | --track x",
    "simulate --trace {trace} --policy pellucid --set ageing=nan",
    "simulate --trace {trace} --policy pellucid --set nosuch=1",
    "simulate --trace {trace} --since yesterday",
    "simulate --trace {trace} --loop ajar --policy fifo",
    "compare --trace {trace} --policies , | empty",
    "compare --trace {trace} --policies fifo,best | best",
    "compare --trace {trace} --seeds 0",
    "compare --trace {trace} --workers 0",
    "compare --trace {trace} --where moon:3 --policies fifo",
    "train --trace {trace} --out {out} --where slurm:2 | --keep",
    "train --trace {trace} --out {out} --where local:1 --mlflow sqlite:///{out}.db | --mlflow",
    "serve --port 99999",
    "serve --lease-s nan",
    "serve --database mysql://x/y",
    "serve --backend cloud",
    "submit --gpus 0 -- true",
    "submit --gpus many -- true",
    "profile --device cpu --hz 0 -- true",
    "explain 1 --run {out} --at nan",
    "nosuch",
    "simulate --nosuch",
)
# what a shell lets through: bytes that are no text, names that end a line, depth, length
NO_TEXT = "\udcff\udcfe"
DEEP, LONG = "[" * 20_000, f"0x{'f' * 6000}"
ODD: tuple[tuple[str, ...], ...] = (
    *((name, NO_TEXT) for name in ("why", "hold", "release", "cancel")),
    *((name, NO_TEXT, "--gpus", "1") for name in ("change", "whatif")),
    ("why", "1", "--after", NO_TEXT),
    ("priority", NO_TEXT, "--to", "1"),
    ("node", "drain", NO_TEXT),
    ("ps", "--vc", NO_TEXT),
    ("ps", "--server", f"http://{NO_TEXT}"),
    *(("submit", "--key", key, "--", "true") for key in (NO_TEXT, "é☃", "a\nb")),
    *(
        (*command, f"ageing={value}")
        for command in (
            ("settings", "set"),
            ("serve", "--backend", "simulated", "--database", "sqlite:///{out}/db", "--set"),
        )
        for value in (DEEP, LONG, "2024-13-45", "2001-12-14t21:59:43.10-99:99", "2024-12-13")
    ),
    *(("token", "list", "--config", f"{{{name}}}") for name in ("deep", "long", "list")),
    *(
        ("token", "list", "--database", url)
        for url in (
            "postgresql://u@localhost:notaport/x",
            "sqlite:///{out}?timeout=abc",
            f"sqlite:///{NO_TEXT}",
        )
    ),
    ("slurm", "release-all"),
)
# commands for which such a file is no bad input
FINE = {
    ("serve config", "empty"),
    ("token", "empty"),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    at = tmp_path_factory.mktemp("bad")
    found = {kind: at / kind for kind in BAD}
    found["empty"].write_bytes(b"")
    found["folder"].mkdir()
    found["binary"].write_bytes(np.random.default_rng(0).bytes(4096))
    found["device"] = Path("/dev/null")
    found["latin1"].write_bytes("Ärger|größer\n1|2\n".encode("latin-1"))
    found["nan"].write_text('{"jobs": NaN, "vcs": .nan, "gpus_per_node": .inf}\n')
    pq.write_table(pa.table({"colour": ["red"], "weight": [float("nan")]}), found["columns"])
    found["endless"].write_bytes(b"9" * 2_000_000)
    os.mkfifo(found["pipe"])
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(found["socket"]))
    with found["huge"].open("wb") as file:
        file.truncate(1 << 40)  # sparse
    pq.write_table(pa.table({"job_id": [str(one) for one in range(1000)]}), found["cut"])
    found["cut"].write_bytes(found["cut"].read_bytes()[:1000])
    found["link"].symlink_to("nowhere")
    found["unreadable"].write_text("vcs: {}\n")
    found["unreadable"].chmod(0)
    yield found
    found["unreadable"].chmod(0o600)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of a service in which nothing has happened yet."""
    path = tmp_path_factory.mktemp("log") / "pellucid.db"
    made = Store(f"sqlite:///{path}")
    prepare(made)
    made.close()
    return path


def vanish(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a file there that is gone as soon as somebody opens it, after whatever was asked of it
    before."""
    path.write_text("{}\n")
    right = os.open

    def gone(name: Any, *given: Any, **more: Any) -> int:
        if os.fspath(name) in (str(path), os.fsencode(path), path.name):
            path.unlink(missing_ok=True)
        return right(name, *given, **more)

    monkeypatch.setattr(os, "open", gone)


def run(
    line: str | Sequence[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Status of a command, and what it said on standard error."""
    capfd.readouterr()
    words = line.split() if isinstance(line, str) else line
    monkeypatch.setattr(sys, "argv", ["pellucid", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr()
    return int(ended.value.code or 0), said.err


def one_line(said: str) -> bool:
    """A message of one line, or usage and a box with one error, as the command line prints them."""
    if "Traceback" in said or any(ord(c) < 32 and c not in "\n\r" for c in said):
        return False
    lines = [line for line in said.splitlines() if line.strip()]
    return len(lines) == 1 or any("Error" in line or "Usage" in line for line in lines)


@pytest.mark.usefixtures("synced")  # a device takes what is written, but cannot be synced
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_file_is_one_line_and_status_2(
    command: str,
    kind: str,
    bad: dict[str, Path],
    small_trace: Path,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if (command, kind) in FINE:
        pytest.skip("no bad input of this command")
    if kind == "unreadable" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    job = log.with_name("job.sh")
    job.write_text("#!/bin/sh\n#SBATCH --gpus=1\ntrue\n")
    if kind == "vanishing":
        vanish(bad[kind], monkeypatch)
    places = {"trace": small_trace, "dump": DUMP, "log": log, "job": job, "out": tmp_path / "out"}
    line = COMMANDS[command].format(bad=bad[kind], **places)
    status, said = run(line, monkeypatch, capfd)
    assert (status, one_line(said)) == (2, True), f"{line}\n{status}\n{said}"
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not left, f"{line} left {left}"
    if kind in ("missing", "folder", "pipe", "socket", "link", "vanishing"):
        assert bad[kind].name in said, f"{line}\n{said}"


@pytest.mark.parametrize("kind", BAD)
def test_bad_parameters_of_the_pipeline_are_one_line(
    kind: str, bad: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "unreadable" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    if kind == "vanishing":
        vanish(bad[kind], monkeypatch)
    with pytest.raises(UserError) as refused:
        read_params(bad[kind])
    said = plain(str(refused.value))
    assert one_line(said)
    assert said.startswith(plain(f"{bad[kind]}: "))
    assert len(said) < 500 + len(str(bad[kind]))


@pytest.mark.parametrize("line", VALUES)
def test_a_bad_value_is_one_line_and_status_2(
    line: str,
    small_trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line, _, named = line.format(trace=small_trace, out=tmp_path / "out").partition(" | ")
    status, said = run(line, monkeypatch, capfd)
    assert (status, one_line(said)) == (2, True), f"{line}\n{status}\n{said}"
    assert named in said


@pytest.mark.parametrize("words", ODD, ids=lambda words: f"{ascii(words)[:60]}")
def test_what_a_shell_lets_through_is_one_line_and_status_2(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    files = {"deep": f"policy_settings: {'[' * 3000}{']' * 3000}", "long": f"port: {LONG}"}
    files["list"] = "- port"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("scheduler.service.client.ATTEMPTS", 1)
    monkeypatch.setattr("scheduler.service.client.Client.cluster", lambda _: {"now": 0.0})
    monkeypatch.setenv("PELLUCID_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scripts = {
        "squeue": f"cat {tmp_path / 'queue'}",
        "scontrol": "echo PriorityType=priority/basic",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "queue").write_text("[" * 200_000)
    places = {name: str(tmp_path / name) for name in (*files, "out")}
    words = tuple(word.format(**places) if "{" in word else word for word in words)
    status, said = run(words, monkeypatch, capfd)
    assert (status, one_line(said)) == (2, True), f"{status}\n{said}"
    assert "no answer" not in said, "it was sent"
