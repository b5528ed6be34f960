"""A person's corrections: what they change, what they leave alone, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.bundle import AdditiveModel, Bundle
from models.training import edits as module
from models.training.edits import EditError, Edits, apply_edits, read_edits
from scheduler.core.decisions import Action, Decision, Reason, Score
from scheduler.explain.terms import breakdowns, describe

ROOT = Path(__file__).parents[2]


def test_the_projects_file_reads_and_the_examples_can_be_followed_on_the_models_of_the_demo():
    assert read_edits(ROOT / "models" / "edits.yaml").version == 1
    model = Bundle.load(ROOT / "data/prebuilt/bundle").duration
    page = (ROOT / "docs/editing-models.md").read_text()
    for text in (page.split("```yaml\n")[1].split("```")[0], module.__doc__.split("\n\n")[1]):
        done = apply_edits(model, Edits.model_validate(yaml.safe_load(text)))
        assert done.metadata["dropped_terms"] == ["like_error"]


def edits(*entries: dict) -> Edits:
    return Edits.model_validate({"version": 1, "edits": [{"why": "a test", **e} for e in entries]})


def scores(model: AdditiveModel, name: str) -> np.ndarray:
    return model.terms[model.term_names.index(name)].scores


def origins(model: AdditiveModel) -> dict[str, str]:
    return dict(zip(model.term_names, (t.origin for t in model.terms), strict=True))


def test_no_edit_changes_nothing(fitted):
    done = apply_edits(fitted.model, edits())
    assert Bundle(duration=done.model).digest == Bundle(duration=fitted.model).digest
    assert done.metadata["edited_terms"] == []


def test_clip_fix_smooth_and_drop_do_what_they_say(fitted, make_frame):
    model = fitted.model
    done = apply_edits(
        model,
        edits(
            {"feature": "user_ewma_s", "clip": {"low": -0.2, "high": 0.3}},
            {"feature": "submit_hour", "fix": {"from": 20, "score": 0.7}},
            {"feature": "gpus", "smooth": {"rounds": 3}},
            {"feature": "gpu_type", "fix": {"categories": ["A100"], "score": -1.5}},
            {"term": ["submit_hour", "gpu_type"], "drop": True},
        ),
    ).model
    assert np.abs(scores(done, "user_ewma_s")).max() <= 0.3
    assert (scores(done, "user_ewma_s") == np.clip(scores(model, "user_ewma_s"), -0.2, 0.3)).all()
    row = {"submit_hour": 21.0, "gpu_type": "A100"}
    told = done.explain([row.get(spec.name) for spec in done.features]).terms
    assert told[done.term_names.index("submit_hour")] == 0.7
    assert told[done.term_names.index("gpu_type")] == -1.5
    before, after = scores(model, "gpus")[1:], scores(done, "gpus")[1:]
    assert before.min() <= after.min() <= after.max() <= before.max()
    assert np.ptp(after) < np.ptp(before)
    assert "submit_hour & gpu_type" in model.term_names
    assert "submit_hour & gpu_type" not in done.term_names
    changed = {name for name, origin in origins(done).items() if origin == "edited"}
    assert changed == {"user_ewma_s", "submit_hour", "gpus", "gpu_type"}
    untouched = [n for n in done.term_names if n not in changed]
    assert all((scores(done, n) == scores(model, n)).all() for n in untouched)
    assert origins(model) == origins(fitted.model)  # the model given stays as it is


def test_a_dropped_term_leaves_the_average_where_it_was(fitted, training):
    X = training[0]
    free = [n for n in fitted.model.term_names if "&" in n and "limit" not in n and "pat" not in n]
    pair = free[0] if free else "submit_hour & gpu_type"
    for entry in ({"feature": "user_ewma_s"}, {"term": pair.split(" & ")}):
        done = apply_edits(fitted.model, edits({**entry, "drop": True})).model
        assert done.score_batch(X).mean() == pytest.approx(
            fitted.model.score_batch(X).mean(), abs=1e-9
        )


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 99), direction=st.sampled_from([-1, 1]))
def test_an_edited_promise_holds_for_the_whole_score(fitted, make_frame, seed, direction):
    done = apply_edits(fitted.model, edits({"feature": "user_ewma_s", "monotone": direction})).model
    X = make_frame(50, seed, novel=True)
    low, high = X.copy(), X.copy()
    values = np.random.default_rng(seed).uniform(0, 5000, (2, len(X)))
    low["user_ewma_s"], high["user_ewma_s"] = values.min(axis=0), values.max(axis=0)
    step = (done.score_batch(high) - done.score_batch(low)) * direction
    assert step.min() > -1e-9
    assert origins(done)["user_ewma_s"] == "edited"


def test_edits_that_break_a_promise_or_the_guard_are_refused(fitted, training):
    with pytest.raises(EditError, match=r"edit 1 \(monotone time_limit_s\).*promises \+1"):
        apply_edits(fitted.model, edits({"feature": "time_limit_s", "monotone": -1}))
    falling = edits({"feature": "time_limit_s", "fix": {"from": 9000, "score": -9}})
    with pytest.raises(EditError, match="the score would fall with 'time_limit_s'"):
        apply_edits(fitted.model, falling)
    X, duration, _ = training

    def measure(model: AdditiveModel) -> dict[str, float]:
        return {"fit": -float(np.abs(model.score_batch(X) - np.log1p(duration)).mean())}

    flat = edits({"feature": "user_ewma_s", "clip": {"low": 0, "high": 0}})
    with pytest.raises(EditError, match="refused: fit falls from"):
        apply_edits(fitted.model, flat, measure=measure, guard="fit")
    done = apply_edits(fitted.model, flat, measure=measure)
    before, after = done.table["fit"]
    assert after < before
    assert done.metadata["before_after"] == {"fit": [before, after]}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"feature": "nope", "drop": True}, "feature 'nope' is not in the model"),
        ({"feature": "gpu_type", "smooth": {"rounds": 1}}, "no neighbours"),
        ({"feature": "gpu_type", "fix": {"from": 1, "score": 0}}, "give categories"),
        ({"feature": "gpu_type", "fix": {"categories": ["Z"], "score": 0}}, "'Z' is not a categ"),
        ({"feature": "gpus", "fix": {"categories": ["a"], "score": 0}}, "give from and to"),
        ({"term": ["gpus", "never_known"], "drop": True}, "no term gpus & never_known"),
    ],
)
def test_an_edit_that_does_not_fit_the_model_is_named(fitted, entry, says):
    with pytest.raises(EditError, match=says) as caught:
        apply_edits(fitted.model, edits(entry))
    assert str(caught.value).startswith("edit 1 (")
    assert "\n" not in str(caught.value)


BAD = [
    ("version: 2\n", "version is 2"),
    ("version: 1\nedits: [{feature: a, why: x}]", "give exactly one of"),
    ("version: 1\nedits: [{feature: a, drop: true}]", "why"),
    ("version: 1\nedits: [{feature: a, why: x, clip: {low: 2, high: 1}}]", "low 2 is above high 1"),
    ("version: 1\nedits: [{feature: a, why: x, clip: {low: .nan, high: 1}}]", "finite"),
    ("version: 1\nedits: [{feature: a, why: x, fix: {score: 1e9}}]", "less than or equal to 20"),
    ("version: 1\nedits: [{feature: a, why: x, monotone: 3}]", "monotone is 3"),
    ("version: 1\nedits: [{term: [a, b], why: x, clip: {low: 0, high: 1}}]", "only be dropped"),
    ("version: 1\nedits: [{feature: a, why: x, eval: 1}]", "Extra inputs"),
    ("- 1", "the file is"),
    ("{", "not YAML"),
    ("!!python/object/apply:os.system [true]", "not YAML"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_poisoned_files_are_refused_with_one_line(tmp_path, text, says):
    path = tmp_path / "edits.yaml"
    path.write_text(text)
    with pytest.raises(EditError, match=says) as caught:
        read_edits(path)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(st.sampled_from(["version", "edits", "feature", "clip", "why"]), x)
        ),
        max_leaves=8,
    )
)
def test_any_other_document_is_read_or_refused(tmp_path, document):
    path = tmp_path / "edits.yaml"
    path.write_text(yaml.safe_dump(document, allow_unicode=True))
    said = ""
    try:
        assert read_edits(path).version == 1
    except EditError as error:
        said = str(error)
    assert "\n" not in said


def test_explanations_say_who_edited_a_term_and_when(fitted):
    by_ada = {"by": "ada", "on": "2026-03-01"}
    done = apply_edits(
        fitted.model,
        edits(
            {"feature": "gpus", "smooth": {"rounds": 1}, **by_ada},
            {"feature": "submit_hour", "fix": {"from": 20, "score": 0.7}},
        ),
    )
    bundle = Bundle(duration=done.model, metadata={"duration": done.metadata})
    told = done.model.explain([None] * len(done.model.features))
    score = Score(told.intercept + sum(told.terms), told.intercept, tuple(told.terms), "edited")
    d = Decision(0, 0.0, Action.ENQUEUE, Reason.SUBMITTED, "j", "vc", score=score)
    (found,) = breakdowns([d], {"edited": describe(bundle)})
    texts = {term.name: term.text for term in found.terms}
    assert texts["gpus"].endswith(" (edited by ada on 2026-03-01)")
    assert texts["submit_hour"].endswith(" (edited by a person)")
    assert not any("edited" in t for n, t in texts.items() if n not in ("gpus", "submit_hour"))
