"""The commands that docs/forecasts.md promises answer what is asked for."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from pipeline.app import app
from scheduler.service.log.store.store import Store
from tests.scheduler.service.api.conftest import listening
from tests.scheduler.service.api.test_analyst import analysed
from tests.waiting import until

DOCS = Path(__file__).resolve().parents[4] / "docs" / "forecasts.md"
ROW = re.compile(r"^\| (F\d+) .* \| `pellucid ([^`]+)` \| (.*?) ?\|$", re.MULTILINE)
ROWS = ROW.findall(DOCS.read_text())
ELSEWHERE = {"RUN", "TRACE", "FILE"}


def test_every_one_of_the_thirteen_has_a_row_with_options_that_there_are() -> None:
    assert {name for name, *_ in ROWS} == {f"F{number}" for number in range(1, 14)}
    seen = 0
    for _, command, says in ROWS:
        name, *words = command.split()
        assert bool(says) != bool(ELSEWHERE & set(words)), command
        if says:
            continue  # it is run below
        told = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
        options = [word for word in words if word.startswith("--")]
        assert all(re.search(rf"(?<![\w-]){word}(?![\w-])", told) for word in options), command
        seen += 1
    assert seen


def test_each_says_what_the_table_says_and_nothing_of_others(store: Store, tmp_path: Path) -> None:
    with analysed(store, tmp_path) as service:
        other, job, held = (service.submit("alice", gpus=gpus) for gpus in (8, 4, 1))
        service.turn(2)
        service.by("alice").put(f"/api/v1/jobs/{held}/hold").raise_for_status()
        service.turn(2)
        explained = f"/api/v1/jobs/{job}/explain"
        until(lambda: service.by("alice").get(explained).json()["forecast"], "a forecast")
        names = {"JOB": job, "OTHER": other, "HELD": held, "VC": "vision"}
        for address in listening(service.app):
            for command, says in ((command, says) for _, command, says in ROWS if says):
                words = [names.get(word, word) for word in command.split()]
                who = "olga" if words[0] == "priority" else "alice"
                for _ in range(6):  # what it says, not how soon
                    done = service.command(address, who, *words)
                    late = "there was no time" in done.output
                    if not late and "no answer in time" not in str(done.exception):
                        break
                assert done.exit_code == 0, (command, done.output, done.exception)
                assert says in done.output, command
                assert "secret-of-bob" not in done.output
                assert "bob.noyce" not in done.output
