"""Pairs, the labels derived from them, and the two trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from features.job import Profile
from models.bundle import PAIR_FEATURES, Bundle, BundleError, Node, PairHinge, Tree
from models.bundle.packing import pair_values
from models.training.errors import TrainingError
from models.training.packing import (
    MAX_LEAVES,
    _pair_columns,
    configurations,
    evaluate_packing,
    evaluate_pair_hinge,
    evaluate_pair_speed,
    fit_packing,
    fit_pair_hinge,
    fit_pair_speed,
)
from models.training.pairs import (
    PAIR_SCHEMA,
    PairMeasurements,
    read_artifact,
    read_pairs,
)
from models.training.simulated import simulated_pairs
from models.training.trees import exported_tree

PROFILES = st.builds(
    Profile,
    gpu_util_pct=st.floats(0, 100),
    gpu_mem_util_pct=st.floats(0, 100),
    gpu_mem_mib=st.floats(0, 80_000),
    amp=st.none() | st.booleans(),
)


@pytest.fixture(scope="module")
def pairs() -> PairMeasurements:
    return simulated_pairs(1, pairs=500)


Row = dict[str, object]


def pair(a: str, b: str, speed_a: float, speed_b: float) -> dict[str, object]:
    row: dict[str, object] = {}
    for side, model, speed in (("a", a, speed_a), ("b", b, speed_b)):
        row |= {
            f"model_{side}": model,
            f"dataset_{side}": None,
            f"batch_{side}": 32,
            f"amp_{side}": False,
            f"gpu_util_pct_{side}": 10.0 * len(model),
            f"gpu_mem_util_pct_{side}": 5.0,
            f"gpu_mem_mib_{side}": 2000.0,
            f"speed_{side}": speed,
        }
    return row


def measured(*rows: dict[str, object]) -> PairMeasurements:
    return PairMeasurements(pd.DataFrame(rows)[PAIR_SCHEMA.names], "measured", "a test")


def test_labels_count_the_partners_worth_sharing_with():
    three = measured(
        pair("x", "yy", 0.9, 0.5), pair("zzz", "x", 1.4, 1.0), pair("x", "x", 0.98, 0.96)
    )
    known = configurations(three.members)
    seen = dict(zip(known.family, zip(known.worth, known.label, strict=True), strict=True))
    # a pair with itself counts for both of its members; 1.4 is capped
    assert seen == {"x": (0.75, 1), "yy": (0.0, 2), "zzz": (1.0, 0)}
    assert three.members.speed.max() == 1.0
    just = configurations(measured(pair("x", "yy", 0.8, 1.0)).members)
    assert just.label.tolist() == [2, 2]  # a sum of 1.8 is not above 1.8


def test_a_family_left_out_has_no_say(pairs):
    """Changing what was measured with it changes nothing that was fitted without it."""
    family = pairs.families[0]
    frame = pairs.frame.copy()
    touched = (frame["model_a"] == family) | (frame["model_b"] == family)
    frame.loc[touched, ["speed_a", "speed_b", "gpu_util_pct_a"]] = 0.01
    tampered = PairMeasurements(frame, "simulated", "tampered")
    for fit in (fit_packing, fit_pair_speed):
        with_it, without = fit(pairs).model.tree, fit(pairs, exclude_families=[family]).model.tree
        again = fit(tampered, exclude_families=[family]).model.tree
        assert again.nodes == without.nodes
        assert with_it.nodes != fit(tampered).model.tree.nodes


@given(a=PROFILES, b=PROFILES)
def test_pair_speed_is_symmetric_and_falls_with_demand(bundle, a, b):
    model = bundle.pair_speed
    of_a, of_b = model(a, b)
    assert model(b, a) == (of_b, of_a)
    assert 0 < of_a <= 1
    assert model.explain(a, b)[0] == of_a
    greedy = Profile(b.gpu_util_pct, min(100.0, b.gpu_mem_util_pct + 20), b.gpu_mem_mib)
    assert model(a, greedy)[0] <= of_a


@given(own=PROFILES)
def test_a_verdict_follows_from_its_path(bundle, own):
    score, path = bundle.packing.classify(own)
    shares = bundle.packing.shares(own)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[score] == max(shares)
    assert path
    for step in path:
        name, *rest, sign, threshold = step.split()
        value = getattr(own, name)
        if rest[0] == "missing,":
            assert value is None
        else:
            assert (np.float32(value) <= float(threshold) + 1e-3) == (sign == "<=") or (
                abs(value - float(threshold)) < 1e-3 * max(1.0, abs(value))
            )


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, DecisionTreeRegressor])
def test_exported_trees_agree_with_scikit_learn(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    X[rng.random(X.shape) < 0.1] = np.nan
    fitted = kind(max_leaf_nodes=16, random_state=0).fit(X, y)
    tree = exported_tree(
        fitted, ("a", "b", "c"), lambda i: tuple(fitted.tree_.value[i][0].tolist())
    )
    T = np.concatenate([rng.normal(size=(2000, 3)), X])
    T[:, 0] = np.where(rng.random(len(T)) < 0.2, np.nan, T[:, 0])
    T[:200, 1] = fitted.tree_.threshold[rng.integers(0, fitted.tree_.node_count, 200)]
    values = np.array([tree.leaf(row).value for row in T.tolist()])
    expected = (
        fitted.predict_proba(T) if kind is DecisionTreeClassifier else fitted.predict(T)[:, None]
    )
    if kind is DecisionTreeClassifier:
        values = values / values.sum(axis=1, keepdims=True)
    assert np.abs(values - expected).max() < 1e-12


def test_nodes_that_are_no_tree_are_refused():
    leaf = Node(-1, 0.0, -1, -1, False, (1.0,), 1)
    with pytest.raises(BundleError, match="below"):
        Tree(("a",), [Node(0, 0.0, 0, 1, False, (1.0,), 1), leaf])
    with pytest.raises(BundleError, match="one tree"):
        Tree(("a",), [Node(0, 0.0, 1, 1, False, (1.0,), 1), leaf, leaf])
    with pytest.raises(BundleError, match="does not exist"):
        Tree(("a",), [Node(3, 0.0, 1, 2, False, (1.0,), 1), leaf, leaf])


def test_columns_are_those_of_the_scheduler(pairs):
    columns = _pair_columns(pairs.members)
    n = len(pairs)
    for i in (0, n // 2, n - 1):
        row = pairs.frame.iloc[i]
        a, b = (
            Profile(row[f"gpu_util_pct_{s}"], row[f"gpu_mem_util_pct_{s}"], row[f"gpu_mem_mib_{s}"])
            for s in "ab"
        )
        assert tuple(columns[i]) == pair_values(a, b)
        assert tuple(columns[n + i]) == pair_values(b, a)
    assert len(PAIR_FEATURES) == columns.shape[1]


def test_pairs_survive_parquet_with_their_origin(pairs, tmp_path):
    pq.write_table(pairs.table(), tmp_path / "pairs.parquet")
    back = read_pairs(tmp_path / "pairs.parquet")
    assert (back.origin, back.source) == ("simulated", pairs.source)
    assert back.digest == pairs.digest
    assert fit_packing(back).model.tree.nodes == fit_packing(pairs).model.tree.nodes
    plain = pairs.table().replace_schema_metadata(None)
    pq.write_table(plain, tmp_path / "foreign.parquet")
    assert read_pairs(tmp_path / "foreign.parquet").origin == "measured"


def test_simulation_is_seeded_labelled_and_covers_every_score():
    one, two = simulated_pairs(5), simulated_pairs(5)
    assert one.digest == two.digest != simulated_pairs(6).digest
    assert fit_packing(one, repeats=1).metadata["origin"] == "simulated"
    assert set(configurations(one.members).label) == {0, 1, 2}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"speed_a": [0.0]}, "speed_a is 0, must be above 0"),
        ({"speed_b": [np.nan]}, "speed_b is nan"),
        ({"gpu_util_pct_a": [101.0]}, "gpu_util_pct_a is 101, must be from 0 to 100"),
        ({"gpu_mem_mib_b": ["much"]}, "gpu_mem_mib_b must hold numbers"),
    ],
)
def test_impossible_pairs_are_refused(change, says):
    frame = pd.DataFrame([pair("x", "y", 0.9, 0.9)])[PAIR_SCHEMA.names].assign(**change)
    with pytest.raises(TrainingError, match=says):
        PairMeasurements(frame, "measured", "a test")


def test_too_little_is_refused():
    few = measured(pair("x", "y", 0.9, 0.9))
    for fit in (fit_packing, fit_pair_speed):
        with pytest.raises(TrainingError, match="at least"):
            fit(few)
    with pytest.raises(TrainingError, match="column 'model_a' is missing"):
        PairMeasurements(few.frame.drop(columns="model_a"), "measured", "a test")


@pytest.mark.parametrize("content", [b"", b"PAR1 and nothing", b"a,b\n1,2\n"])
def test_files_that_are_no_pairs_are_refused(tmp_path, content):
    (tmp_path / "pairs.parquet").write_bytes(content)
    with pytest.raises(TrainingError) as caught:
        read_pairs(tmp_path / "pairs.parquet")
    assert "\n" not in str(caught.value)
    (tmp_path / "single_data.csv").write_bytes(content)
    with pytest.raises(TrainingError):
        read_pairs(tmp_path)


@pytest.mark.shared_data
def test_measured_pairs_of_the_artifact(shared_data):
    pairs = read_artifact(shared_data / "packing")
    assert fit_packing(pairs).model.tree.leaves <= MAX_LEAVES
    assert fit_pair_speed(pairs).model.tree.leaves <= MAX_LEAVES
    assert (len(pairs), len(pairs.families)) == (1388, 11)
    known = configurations(pairs.members)
    assert len(known.label) == 56
    speed = evaluate_pair_speed(pairs)
    assert speed["pairs"] == 1388
    # the constant mean has 0.149 and 0.092
    assert speed["mae_sum"] < 0.095
    assert speed["mae_slower"] < 0.070
    assert speed["accuracy"] > 0.83  # the rule below is a little better
    packing = evaluate_packing(pairs, repeats=3)
    assert packing["cv_accuracy"] > 0.75
    assert packing["unseen_family_accuracy"] > 0.75
    assert packing["label_decision_accuracy"] > 0.89
    assert speed["rule_accuracy"] == pytest.approx(0.866, abs=0.002)


# --- pairs whose GPUs have counters ---------------------------------------------------------------

H100 = Path(__file__).resolve().parents[2] / "data" / "profiles" / "h100"


def counted(active: tuple[float, float], *, models: str = "ab", speed: float = 1.0) -> Row:
    sides = {f"sm_active_pct_{side}": pct for side, pct in zip("ab", active, strict=True)}
    return pair(models[0], models[1], speed, speed) | sides


def test_a_hinge_is_found_again_from_what_it_made() -> None:
    true = PairHinge(knee_pct=70.0, slope=0.004, least=0.2)
    rows = [
        counted((x, y), models=f"{m}{n}", speed=true.speed(x + y))
        for m, x in zip("abcdef", np.linspace(5, 95, 6), strict=True)
        for n, y in zip("abcdef", np.linspace(10, 90, 6), strict=True)
    ]
    fitted = fit_pair_hinge(PairMeasurements(pd.DataFrame(rows), "measured", "here"))
    assert fitted is not None
    assert fitted.model.knee_pct == 70.0
    assert fitted.model.slope == pytest.approx(0.004, rel=0.01)


def test_a_hinge_whose_knee_is_sharp_is_made_all_the_same() -> None:
    rows = [counted((50.0, 49.9)) for _ in range(20)] + [counted((50.0, 50.1), speed=0.1)] * 20
    fitted = fit_pair_hinge(PairMeasurements(pd.DataFrame(rows), "measured", "here"))
    assert fitted is not None
    assert 0 < fitted.model.slope <= 1.0


def test_without_the_counter_of_both_there_is_no_hinge() -> None:
    rows = [counted((50.0, np.nan)) for _ in range(40)]
    some = PairMeasurements(pd.DataFrame(rows), "measured", "here")
    none = PairMeasurements(pd.DataFrame([pair("a", "b", 1, 1)] * 40), "measured", "here")
    for pairs in (some, none):
        assert fit_pair_hinge(pairs) is None
        assert evaluate_pair_hinge(pairs) == {}
    assert none.digest != some.digest


@pytest.mark.parametrize(("mode", "mae"), [("time-slicing", 0.08), ("mps", 0.055)])
def test_counters_judge_pairs_of_unseen_families_better_than_utilisation(
    mode: str, mae: float
) -> None:
    """On pairs measured on a real GPU."""
    found = evaluate_pair_hinge(read_pairs(H100, sharing=mode))
    assert found["mae_sum"] <= mae < found["tree_mae_sum"]
    assert found["accuracy"] >= 0.94 > found["rule_accuracy"]


def test_a_bundle_keeps_its_hinge(tmp_path: Path) -> None:
    hinge = PairHinge(knee_pct=67.5, slope=0.0045, least=0.55)
    assert Bundle.load(Bundle(pair_hinge=hinge).save(tmp_path / "b")).pair_hinge == hinge
    assert "pair_hinge" not in Bundle.load(Bundle().save(tmp_path / "c")).parts
    with pytest.raises(BundleError, match="impossible"):
        PairHinge(knee_pct=67.5, slope=-0.1, least=0.5)


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
def test_more_activity_never_makes_a_pair_faster(a: float, b: float, more: float) -> None:
    hinge = PairHinge(knee_pct=60.0, slope=0.005, least=0.3)
    one, other, busier = (
        Profile(0.0, 0.0, 0.0, sm_active_pct=x) for x in (a, b, min(100, b + more))
    )
    slower, faster = hinge(one, busier), hinge(one, other)
    assert slower is not None
    assert faster is not None
    assert 0 < slower[0] <= faster[0] <= 1
    assert hinge(one, other) == hinge(other, one)
    assert hinge(one, Profile(0.0, 0.0, 0.0)) is None
