"""torch, where it is installed."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="session")
def torch() -> None:
    """Skips where the extra `profiler` is not installed (`make test-profiler` installs it)."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: make test-profiler")
