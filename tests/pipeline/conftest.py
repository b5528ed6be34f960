"""What several tests of commands are asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.traces.synthetic.generate import default_config, write


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small synthetic trace as a dataset. It is read, or copied, and never changed."""
    path = tmp_path_factory.mktemp("trace") / "small"
    write(default_config("small"), path)
    return path
