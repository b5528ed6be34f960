"""Loops that look again after an error log one line of it, whatever it says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from scheduler.service.log import export, notices, retention, served, watch_models
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk

HERE = Path("nowhere")
LOOPS: dict[str, tuple[Any, str, Callable[..., None]]] = {
    "watch_failed": (watch_models, "look", partial(watch_models.keep_watching, "", HERE)),
    "notices_failed": (notices, "_decided", partial(notices.keep_notifying, "", "", HERE)),
    "export_failed": (export, "_count", partial(export.keep_exporting, "", HERE, 1)),
    "prune_failed": (retention, "prune", partial(retention.keep_pruning, "", 30.0, 0.0)),
    "count_failed": (served, "count", partial(served.keep_counting, "", HERE)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_an_error_is_one_line_of_the_log_and_the_loop_goes_on(
    name: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Desk(store, tmp_path)
    module, does, loop = LOOPS[name]
    errors = [
        OSError(),
        OperationalError("select secret from jobs", {}, Exception("database is locked")),
    ]
    left = iter(errors)

    def fails(*_: object) -> None:
        if error := next(left, None):
            raise error

    monkeypatch.setattr(module, does, fails)
    monkeypatch.setattr(module, "Store", lambda _: store)
    with capture_logs() as log:
        loop(lambda _: len(lines(log)) == len(errors))
    assert lines(log) == ["OSError", "(builtins.Exception) database is locked"]


def lines(log: list[Any]) -> list[str]:
    """Why it failed, each time."""
    return [one["why"] for one in log if "why" in one]
