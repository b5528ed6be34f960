"""What a job is to do reaches whoever reads its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.progress.apart import Reading
from scheduler.backends.base import Launch, Purpose
from scheduler.backends.local.follow import asked_of, followed_of
from scheduler.backends.local.spool import Claim


@pytest.mark.parametrize(
    ("command", "amount"),
    [
        (["bash", "-lc", "conda activate x && torchrun train.py --max_steps=12000"], {}),
        (["python", "train.py", "--config", "c.toml"], {"steps": 12_000.0}),
        (["python", "train.py", "--max_steps", "12000"], {"steps": 5.0}),  # its own words first
    ],
)
def test_a_total_that_is_not_printed_is_known(
    command: list[str], amount: dict[str, float], tmp_path: Path
) -> None:
    launch = Launch(
        "1", 1, Purpose.RUN, tuple(command), (0,), ((0,),), progress=True, amount=amount
    )
    claim = Claim(command=command, **asked_of(launch, True))  # type: ignore[typeddict-item]
    reading = Reading()
    followed = followed_of(claim, tmp_path / "output", reading)
    assert followed is not None
    found = None
    for at in range(10, 400, 10):
        with (tmp_path / "output").open("a") as file:
            file.write(f"step: {at} loss: 2.1\n")
        found = followed.look(float(at)) or found
        assert reading.settle(30.0)
    found = followed.look(400.0) or found
    reading.close()
    assert found is not None
    assert found.total_s == pytest.approx(12_000, rel=0.1)
