"""Reference workloads: what they are, and that their step count is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.errors import BadOption
from reproductions.colocation.workloads import WORKLOADS, Config, all_configs, parse_config

ROOT = Path(__file__).resolve().parents[3]


def test_listing_loads_no_torch() -> None:
    loads = "reproductions.colocation.workloads, profiler.session"
    code = f"import sys, {loads}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_configurations_are_read_as_they_are_written() -> None:
    for config in [*all_configs(), *all_configs("tiny")]:
        assert parse_config(str(config)) == config
    assert parse_config("BERT") == Config("BERT", 8)
    assert parse_config("BERT/amp/16") == Config("BERT", 16, True)
    for text in ("", "bert", "BERT/", "BERT/-1", "BERT/1.5", "BERT/99999999", "A2C/amp"):
        with pytest.raises(BadOption):
            parse_config(text)


def build(name: str, *, amp: bool = False, size: str = "tiny", batch: int | None = None) -> Any:
    import torch

    from reproductions.colocation.workloads import loop

    torch.set_num_threads(1)
    config = Config(name, batch or WORKLOADS[name].tiny_batch, amp)
    return loop.build(config, "cpu", size, seed=3)  # type: ignore[arg-type]


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_family_trains(name: str) -> None:
    import torch

    # small batches: this is about being right, not about being a load
    task = build(name, batch=4)
    models = [v for v in vars(task).values() if isinstance(v, torch.nn.Module)]
    before = [p.detach().clone() for m in models for p in m.parameters()]
    losses = [float(task.step()) for _ in range(2)]
    after = [p for m in models for p in m.parameters()]
    assert all(torch.isfinite(torch.tensor(losses)))
    moved = sum(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert moved >= 0.9 * len(before)  # every layer takes part, bar an embedding row or so


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["VGG", "DCGAN", "LSTM", "BERT", "NeuMF"])
def test_mixed_precision_computes_in_half(name: str) -> None:
    import torch

    task = build(name, amp=True, batch=4)
    seen: set[torch.dtype] = set()
    models = [v for v in vars(task).values() if isinstance(v, torch.nn.Module)]
    for layer in (layer for model in models for layer in model.modules()):
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            layer.register_forward_hook(lambda _m, _i, out: seen.add(out.dtype))
    assert torch.isfinite(task.step())
    assert torch.bfloat16 in seen


# parameters in millions, from the papers' reference implementations (10 classes for CIFAR-10)
PUBLISHED = {
    "ResNet50": 25.557,
    "ResNet18": 11.174,
    "MobileNetV2": 2.237,
    "MobileNetV3": 2.543,
    "EfficientNet": 4.020,
    "VGG": 14.72,
}


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", PUBLISHED)
def test_full_models_have_the_published_size(name: str) -> None:
    task = build(name, size="full", batch=1)
    millions = sum(p.numel() for p in task.model.parameters()) / 1e6
    assert millions == pytest.approx(PUBLISHED[name], rel=0.003)


@pytest.mark.usefixtures("torch")
def test_the_count_is_that_of_the_steps_made(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from reproductions.colocation.workloads import loop

    made = []

    class Task:
        def step(self) -> Any:
            made.append(1)
            return torch.zeros(())

    reports: list[dict[str, Any]] = []
    loop.train(Task(), "cpu", reports.append, lambda: len(made) >= 503)
    assert reports[0]["event"] == "ready"
    done = reports[-1]
    assert done["event"] == "done"
    assert done["steps"] == 500 == len(made) - reports[0]["warmup_steps"]
    assert done["steps_per_s"] == pytest.approx(500 / (done["t"] - reports[0]["t"]))


@pytest.mark.usefixtures("torch")
def test_the_program_reports_and_refuses(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"

    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "reproductions.colocation.workloads",
            "--device",
            "cpu",
            *arguments,
        ]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    done = program(
        "NeuMF/64", "--tiny", "--threads", "1", "--seconds", "0.5", "--report", str(report)
    )
    assert (done.returncode, done.stdout) == (0, "")
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert lines[0]["workload"] == "NeuMF/64"
    assert lines[-1]["steps_per_s"] > 1
    refused = program("NoSuchNet")
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1
