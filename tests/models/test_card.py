"""The card, the effects as data, jobs like this one, and drift."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from features.job import Job
from features.spec import FeatureSpec
from features.survival import EDGES_S, HISTORIES, History
from models.bundle import AdditiveModel, Axis, Bundle, Term
from models.training.card import effects, model_card, similar_rows, write_card
from models.training.drift import DRIFTED, measure_drift
from models.training.edits import Edits, apply_edits
from models.training.errors import TrainingError
from models.training.plots import LONGEST_LABEL, as_written, plot_histories, plot_shapes
from scheduler.core.estimates import HistoriesEstimator
from tests.scheduler.service.pages.bundle import small_bundle

HOSTILE = (r"a$\frac{b$", "$$", "$A_{", "\ud800\x1b[2J\0", "two\nlines", "V" * 5000)


class Tags(HTMLParser):
    """Which tags a page opens, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("form", ["png", "svg"])
def test_whatever_people_call_a_type_of_gpu_the_effects_are_drawn(form, tmp_path):
    model = small_bundle().duration
    axes = [replace(a, categories=HOSTILE) if a.categories else a for a in model.axes]
    many = np.linspace(-1, 1, len(HOSTILE) + 2)
    kind = replace(
        model.terms[2], scores=many, weights=np.ones_like(many), spread=np.zeros_like(many)
    )
    drawn = AdditiveModel(axes, [kind], model.intercept, model.link)
    assert plot_shapes(drawn, tmp_path / f"shapes.{form}").stat().st_size > 3000


@pytest.mark.parametrize("text", HOSTILE)
def test_what_people_call_things_is_drawn_in_one_short_line(text, tmp_path):
    shown = as_written(text)
    assert shown.isprintable()
    assert len(shown) <= 10 * LONGEST_LABEL
    curve = (0.1,) * (len(EDGES_S) + 1)
    history = History("user", text, curve, curve, curve, curve)
    assert plot_histories([history], tmp_path / "histories.png").stat().st_size > 3000


def test_a_card_names_its_data_errors_slices_edits_and_limits(bundle, tmp_path):
    wanted = Edits.model_validate(
        {
            "version": 1,
            "edits": [
                {"feature": "gpus", "clip": {"low": 0, "high": 0}, "why": "<script>no</script>"}
            ],
        }
    )
    done = apply_edits(bundle.duration, wanted, measure=lambda m: {"figure": m.intercept})
    changed = Bundle(
        duration=done.model,
        packing=bundle.packing,
        metadata={
            **bundle.metadata,
            "duration": {**bundle.metadata["duration"], **done.metadata},
        },
    )
    page = model_card(
        changed,
        metrics={"ga2m": {"auc": 0.8125}},
        slices={"GPUs": {"8": {"auc": 0.7}}},
        limits=["Not for inference."],
    )
    write_card(tmp_path / "card.html", page)
    assert (tmp_path / "card.html").read_text() == page
    assert len(list(tmp_path.iterdir())) == 1
    seen = Tags()
    seen.feed(page)
    assert "script" not in seen.opened
    for text in (
        changed.digest,
        str(bundle.metadata["duration"]["data_digest"]),
        str(bundle.metadata["duration"]["window_from"]),
        "0.8125",
        "By GPUs",
        "edited",
        "<script>no</script>",
        "before",
        "Not for inference.",
        "from a formula",
    ):
        assert text in seen.text, text
    assert "edits digest" not in seen.text


def test_a_card_reads_as_a_page(bundle):
    """Numbers without exponents, no raw dictionaries, no title twice, histories as a picture."""
    known = HistoriesEstimator().state.histories(Job("1", 1e9, 1, user="ada", vc="a"), 1e9)
    made = Bundle(
        duration=bundle.duration,
        metadata={**bundle.metadata, HISTORIES: [one.plain() for one in known]},
    )
    foil = {"kind": "typical", "job_id": "7", "gpus": 1, "predicted_s": 9.0, "duration_s": 44_420.0}
    alike = [{"job_id": "6", "gpus": 1, "duration_s": 44_421.0}]
    examples = [{**foil, "alike": alike}, {**foil, "job_id": "8", "alike": alike}]
    page = model_card(made, metrics={"ga2m": {"seconds": 44_420.4}}, examples=examples)
    assert "44,420" in page
    assert "e+04" not in page
    assert "{&#x27;" not in page
    titles = re.findall("<h[23]>(.+?)</h[23]>", page)
    assert len(titles) == len(set(titles))
    assert page.count("data:image/png;base64,") == 1
    assert "ada&#x27;s jobs" in page
    assert "data:image" not in model_card(bundle)


def test_effects_are_what_the_model_adds(bundle, make_frame):
    told = {entry["name"]: entry for entry in effects(bundle.duration)}
    assert [e["importance"] for e in told.values()] == sorted(
        (e["importance"] for e in told.values()), reverse=True
    )
    for name, term in zip(bundle.duration.term_names, bundle.duration.terms, strict=True):
        if len(term.features) == 1:
            assert told[name]["scores"] == term.scores.tolist()
        assert np.log(told[name]["factors"]) == pytest.approx(np.array(told[name]["scores"]))
        assert np.shape(told[name]["scores"]) == tuple(len(x) for x in told[name]["bins"])


def test_bins_of_a_pair_that_say_the_same_are_one():
    """A pair of shapes with 500 bins each, as the monotone ones have, was 28 MB in MLflow."""
    long = Axis(FeatureSpec("long", "continuous", "size"), cuts=tuple(map(float, range(1, 9))))
    kind = Axis(FeatureSpec("kind", "nominal", "size"), categories=("a", "b"))
    scores = np.repeat([[0.0], [1.0], [1.0], [2.0]], 4, axis=1)[[0, 1, 1, 1, 2, 2, 3, 3, 3, 3]]
    scores[6, 2] = 5.0  # one bin is another in one category only
    weights, spread = np.arange(40.0).reshape(10, 4), np.zeros((10, 4))
    spread[9] = 0.5  # and the last is less firm
    pair = Term((0, 1), scores, weights, spread)
    (told,) = effects(AdditiveModel([long, kind], [pair], 0.0))
    assert told["bins"][0] == ["missing", "< 5", "5 to 6", "6 to 8", ">= 8"]
    assert len(told["bins"][1]) == 4
    for bins, at in ((range(1, 6), 1), (range(6, 7), 2), (range(7, 9), 3), (range(9, 10), 4)):
        assert [scores[k].tolist() for k in bins] == [told["scores"][at]] * len(bins)
        assert np.sum(weights[list(bins)], axis=0).tolist() == told["rows"][at]
    assert [row[0] for row in told["spread"]] == [0.0, 0.0, 0.0, 0.0, 0.5]
    assert told["importance"] == pair.importance()


def test_jobs_like_this_one_are_those_the_model_treats_alike(bundle, make_frame):
    model, X = bundle.duration, make_frame(300, 5)
    row = [X[spec.name].iloc[7] for spec in model.features]
    found = similar_rows(model, X, row, 4)
    assert found[0][1] == 0.0
    assert 7 in [i for i, d in similar_rows(model, X, row, 300) if d == 0.0]
    distances = [d for _, d in found]
    assert distances == sorted(distances)
    terms = model.terms_batch(X)
    every = np.sqrt(((terms - terms[7]) ** 2).sum(axis=1))
    assert distances == pytest.approx(np.sort(every)[:4].tolist())


def test_drift_finds_the_feature_that_moved_and_the_bias(fitted, make_frame):
    model = fitted.model
    calm = measure_drift(model, make_frame(3000, 21))
    assert calm.warnings == ()
    assert max(calm.features.values()) < DRIFTED
    moved = make_frame(3000, 22)
    moved["submit_hour"] = moved["submit_hour"] / 4
    rng = np.random.default_rng(0)
    found = measure_drift(
        model, moved, residual=rng.normal(1.0, 1, 500), reference=rng.normal(0, 1, 500)
    )
    assert next(iter(found.features)) == "submit_hour"
    assert "jobs now run longer" in found.warnings[0]
    assert "submit_hour has drifted" in found.warnings[1]
    assert len(found.warnings) == 2
    assert found.metrics()["drift/shift of errors"] == pytest.approx(1.0, abs=0.2)
    with pytest.raises(TrainingError, match="at least"):
        measure_drift(model, make_frame(20, 0))
