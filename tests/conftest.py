"""Shared fixtures. Public traces live beside the project and are never copied into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, core, settings
from hypothesis.vendor import pretty

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile(
    "pellucid", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pellucid")


def pytest_collection_finish() -> None:
    """Examples are printed again: schemathesis, once imported, empties them in every test."""
    core.RepresentationPrinter = pretty.RepresentationPrinter


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
