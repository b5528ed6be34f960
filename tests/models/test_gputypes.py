"""Speeds on other types of GPU."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from models.bundle import Bundle, BundleError
from models.bundle.gputypes import LEVELS, SEEN, UNSEEN
from models.training.errors import TrainingError
from models.training.gputypes import Measured, evaluate_gpu_types, fit_gpu_types
from pipeline.evaluate import heterogeneity


def world(families: int = 8, noise: float = 0.02, seed: int = 0) -> list[Measured]:
    """Rates by a stated rule: type, family and batch each with an effect of its own."""
    rng = np.random.default_rng(seed)
    taste = {f"f{i}": rng.normal(0, 0.3) for i in range(families)}
    rows = []
    for name, likes in taste.items():
        for batch in (16, 32, 64, 128):
            fast = 1.0 + likes + 0.1 * math.log2(batch / 45.25) + rng.normal(0, noise)
            rate = 100.0 / batch
            rows.append(Measured(name, batch, 1, {"old": rate, "new": rate * math.exp(fast)}))
    return rows


def test_the_effects_of_a_known_rule_are_found() -> None:
    model = fit_gpu_types(world())
    truth = {m.family: m for m in world(noise=0.0) if m.batch == 64}
    for family, m in truth.items():
        found = model.predict(family, 64, 1, "old", "new")
        assert math.log(found.ratio) == pytest.approx(sum(found.terms))
        assert found.basis == SEEN
        assert found.ratio == pytest.approx(m.rates["new"] / m.rates["old"], rel=0.15)
        back = model.predict(family, 64, 1, "new", "old")
        assert back.ratio == pytest.approx(1 / found.ratio)
    unseen = model.predict("nobody", 64, 1, "old", "new")
    assert unseen.basis == UNSEEN
    assert unseen.terms[1:] == (0.0, 0.0, 0.0)
    widths = [high / low for low, high in unseen.intervals]
    assert widths == sorted(widths)
    assert len(widths) == len(LEVELS)
    assert model.predict("f0", 64, 1, "new", "new").ratio == 1.0


def test_too_few_families_and_unknown_types_are_said() -> None:
    with pytest.raises(TrainingError, match="2 model families"):
        fit_gpu_types(world(families=2))
    with pytest.raises(BundleError, match="'h200' is unknown; known: new, old"):
        fit_gpu_types(world()).predict("f0", 64, 1, "old", "h200")


def test_a_bundle_carries_it(tmp_path: Path) -> None:
    model = fit_gpu_types(world())
    read = Bundle.load(Bundle(gpu_types=model).save(tmp_path / "b"))
    assert read.parts == ("gpu_types",)
    assert read.gpu_types.predict("f1", 16, 1, "old", "new") == model.predict(
        "f1", 16, 1, "old", "new"
    )


@pytest.mark.shared_data
def test_a_measured_family_is_better_known_than_the_types_alone(shared_data: Path) -> None:
    measured = heterogeneity.read_rates(shared_data / "gavel/simulation_throughputs.json")
    found = evaluate_gpu_types([m for m in measured if m.gpus == 1])
    seen = found["unseen_configuration"]
    assert seen["mae_log"] < 0.5 * seen["types_mae_log"]
    assert found["unseen_family"]["mae_log"] < 0.6 * found["unseen_family"]["same_mae_log"]
    assert found["unseen_family"]["coverage_95"] > 0.85


def test_malformed_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for text, said in (("[]", "not a table"), ('{"k80": 1}', "not a table")):
        path.write_text(text)
        with pytest.raises(TrainingError, match=said):
            heterogeneity.read_rates(path)
    path.write_text('{"k80": {"x": {"null": 1}}, "p100": {}, "v100": {}}')
    with pytest.raises(TrainingError, match="names no model"):
        heterogeneity.read_rates(path)
    with pytest.raises(TrainingError, match="No such file"):
        heterogeneity.read_rates(tmp_path / "absent.json")
