"""Bad inputs of every command: one line that says what is wrong, status 2, nothing half-written.

A table: each row a command with a hole in it, filled by each kind of bad file in turn.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli import main

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
    "name\x1b]0;x\x07",
)
# {bad}: the bad input; {trace}: a good dataset; {out}: where results would go
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
}
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
    found["unreadable"].write_text("vcs: {}\n")
    found["unreadable"].chmod(0)
    yield found
    found["unreadable"].chmod(0o600)


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if (command, kind) in FINE:
        pytest.skip("no bad input of this command")
    if kind == "unreadable" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    line = COMMANDS[command].format(bad=bad[kind], trace=small_trace, out=tmp_path / "out")
    status, said = run(line, monkeypatch, capfd)
    assert (status, one_line(said)) == (2, True), f"{line}\n{status}\n{said}"
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not left, f"{line} left {left}"
    if kind in ("missing", "folder", "pipe", "socket"):
        assert bad[kind].name in said, f"{line}\n{said}"


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
