"""Shared fixtures. Public traces live beside the project and are never copied into it."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, core, settings
from hypothesis.vendor import pretty
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.pool import Pool

from scheduler.service.settings import Settings

# How long an example takes says how busy the machine is, and nothing about the code.
# Who plants bugs (benchmarks.mutants) need not know the smallest example of each.
shrinks = "PELLUCID_TESTS_SHRINK_NOTHING" not in os.environ
settings.register_profile(
    "pellucid",
    settings(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if shrinks or phase not in (Phase.shrink, Phase.explain)],
)
settings.load_profile("pellucid")


def pytest_configure() -> None:
    """Each of several workers beside a PostgreSQL has a database of its own there."""
    worker, url = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PELLUCID_TEST_DATABASE")
    if worker and url:
        os.environ["PELLUCID_TEST_DATABASE"] = own_database(url, worker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What `make test` ran is not run again: beside a PostgreSQL only those tests of `scheduler`
    are that reach it, and for `make walks` and `make test-profiler` only those that are skipped
    without it."""
    scheduler = Path(__file__).parent / "scheduler"

    def runs(item: pytest.Item) -> bool:
        reasons = [str(one.kwargs.get("reason", "")) for one in item.iter_markers("skipif")]
        if os.environ.get("PELLUCID_WALKS"):
            return any(reason.endswith("make walks") for reason in reasons)
        fixtures = getattr(item, "fixturenames", ())
        if os.environ.get("PELLUCID_TORCH"):
            needs = any(reason.endswith("make test-profiler") for reason in reasons)
            return needs or "torch" in fixtures
        if os.environ.get("PELLUCID_TEST_DATABASE") and item.path.is_relative_to(scheduler):
            return "postgresql" in fixtures
        return True

    config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
    items[:] = [item for item in items if runs(item)]


def own_database(url: str, name: str) -> str:
    """URL of a database of that name, made where `url` has one."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def pytest_collection_finish() -> None:
    """Examples are printed again: schemathesis, once imported, empties them in every test."""
    core.RepresentationPrinter = pretty.RepresentationPrinter


@event.listens_for(Pool, "checkout")
def unsynced(connection: Any, *_: Any) -> None:
    """No test cuts the power: commits of its own process wait for no disk."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


@pytest.fixture(scope="session", autouse=True)
def fresh_loggers() -> Iterator[None]:
    """What a test sets up as the service does keeps no logger, which `capture_logs` would miss."""
    configure = structlog.configure
    kept = {"cache_logger_on_first_use": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", lambda **how: configure(**{**how, **kept}))
        yield


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A service that a test sets up writes its log to what pytest captured then, and no longer."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def no_models_of_the_work_tree() -> Iterator[None]:
    """A service of a test decides with no models that `make demo` happened to leave here."""
    bundle = Settings.model_fields["bundle"]
    before, bundle.default = bundle.default, Path("data/no-bundle")
    Settings.model_rebuild(force=True)
    yield
    bundle.default = before
    Settings.model_rebuild(force=True)


@pytest.fixture
def synced() -> Iterator[None]:
    """Connections are as the service has them."""
    event.remove(Pool, "checkout", unsynced)
    yield
    event.listen(Pool, "checkout", unsynced)


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Callable[[], Path]]:
    """Makes folders that other accounts may enter. Every pytest that starts keeps others out of
    those of `tmp_path`, for one that runs beside it, too."""
    with tempfile.TemporaryDirectory(prefix="pellucid-tests-") as root:
        Path(root).chmod(0o755)

        def make() -> Path:
            folder = Path(tempfile.mkdtemp(dir=root))
            folder.chmod(0o755)
            return folder

        yield make


SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the public traces; skips without it, fails without it when CI=true."""
    if not SHARED_DATA.is_dir():
        message = "the public traces are not beside the project (../shared/data)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return SHARED_DATA
