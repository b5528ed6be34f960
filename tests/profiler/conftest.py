"""Fixtures: a fake NVML, and torch where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fake_nvml", HERE / "fake_nvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_nvml"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    """The module `fake_nvml`."""
    return sys.modules.get("fake_nvml") or _load()


@pytest.fixture(scope="session")
def torch() -> None:
    """Skips where the extra `profiler` is not installed (`make test-profiler` installs it)."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: make test-profiler")
