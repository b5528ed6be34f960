"""Each wing is imported alone, as where nothing of the others is installed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Every module of some packages is imported where modules of others, or libraries, are not there.
ALONE = """
import importlib, importlib.abc, json, pkgutil, sys
packages, absent, present = map(tuple, json.loads(sys.argv[1]))

def within(name, names):
    return any(name == one or name.startswith(one + ".") for one in names)

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        above = any(one.startswith(name + ".") for one in present)
        if within(name, absent) and not within(name, present) and not above:
            raise ModuleNotFoundError(f"{name} is not part of this wing", name=name)

sys.meta_path.insert(0, Absent())
count = 0
for package in packages:
    root = importlib.import_module(package)
    count += 1
    for found in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}."):
        # run by alembic, and what says itself that it needs another extra
        if not found.name.endswith(("__main__", "migrations.env", "helios_forest")):
            importlib.import_module(found.name)
            count += 1
print(count)
"""
SERVICE = ("scheduler.service", "fastapi", "uvicorn", "sqlalchemy", "alembic", "prometheus_client")
# what a login node need not have, and what an answer there has no use for
HEAVY = ("pydantic", "yaml", "structlog", "scheduler.policies", "scheduler.assembly")
TRAINING = ("models.training", "interpret", "lightgbm", "mlflow", "pandas", "sklearn", "matplotlib")
ROOMS = tuple(  # of the service, all but its log and its settings
    f"scheduler.service.{room}"
    for room in ("analyst", "api", "app", "backends", "decide", "metrics", "pages")
)
WINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "core": (
        ("scheduler.core", "scheduler.assembly", "scheduler.policies", "scheduler.simulation"),
        ("pipeline", "profiler", "reproductions", "scheduler.slurm", *SERVICE, *TRAINING),
        (),
    ),
    "a look at Slurm": (
        ("scheduler.slurm.look", "scheduler.slurm.read", "scheduler.slurm.twin"),
        (
            "pipeline",
            "profiler",
            "reproductions",
            "scheduler.slurm.entry",
            *HEAVY,
            *SERVICE,
            *TRAINING,
        ),
        (),
    ),
    "slurm": (
        ("scheduler.slurm",),
        ("pipeline", "reproductions", "scheduler.backends.local", "fastapi", *ROOMS, *TRAINING),
        (),
    ),
    "service": (
        ("scheduler.service",),
        ("pipeline", "reproductions", "scheduler.slurm", *TRAINING),
        ("scheduler.slurm.reason", "scheduler.slurm.codes"),
    ),
    "profiler": (("profiler",), ("models", "pipeline", "reproductions", "scheduler"), ()),
    "training": (
        ("models",),
        ("pipeline", "profiler", "reproductions", "scheduler"),
        (),
    ),
    "reproductions": (
        ("reproductions.baselines",),
        ("pipeline", "profiler", "scheduler.slurm", *SERVICE, *TRAINING),
        (),
    ),
}


@pytest.mark.parametrize("wing", WINGS)
def test_a_wing_is_imported_without_the_others(wing: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(WINGS[wing])], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert int(done.stdout) >= len(WINGS[wing][0])
