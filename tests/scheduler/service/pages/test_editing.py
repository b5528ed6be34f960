"""A shape is changed in the browser: what would come of it, and that training takes the file."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from random import Random

import numpy as np
import pytest

from models.bundle import AdditiveModel, Axis, Bundle, Term
from models.bundle.acceptance import check
from models.training.edits import apply_edits, read_edits
from scheduler.service.log.beside import Ended
from scheduler.service.log.proposals import JUDGED, Judged, Proposals, write
from scheduler.service.pages.workbench import (
    MOST_PARTS,
    Asked,
    NoEdit,
    drawing,
    saved,
    tried,
)
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import Lived, busy_morning

MODEL = small_bundle().duration
CLIP = Asked(feature="gpus", kind="clip", low="-0.1", high="0.2", why="a test")
FIX = Asked(feature="user_submitted_1h", kind="fix", low="3", high="30", score="0.05", why="test")
RISE = Asked(feature="gpus", kind="rise", why="more GPUs, longer")
TODAY = date(2026, 3, 1)


ALL = Asked(feature="gpus", kind="fix", score="1", why="all of them")
DRAWN = Asked(feature="gpus", kind="draw", points=":2.0:-0.5;4.0::0.7", why="dragged")


@pytest.mark.parametrize("asked", [CLIP, FIX, ALL, DRAWN], ids=lambda asked: asked.kind)
def test_training_makes_of_the_saved_file_what_was_shown(asked: Asked, tmp_path: Path) -> None:
    path = tmp_path / "edits.yaml"
    count = 2 if asked is DRAWN else 1
    assert saved(path, asked, "olga", TODAY) == count
    edits = read_edits(path)
    assert (edits.edits[0].by, edits.edits[0].on, edits.edits[0].why) == ("olga", TODAY, asked.why)
    trained, shown = apply_edits(MODEL, edits).model, asked.changed(MODEL)
    for a, b in zip(trained.terms, shown.terms, strict=True):
        assert np.array_equal(a.scores, b.scores)
        assert a.origin == b.origin
    assert saved(path, RISE, "olga", TODAY) == count + 1
    own = "fix" if asked is DRAWN else asked.kind
    assert [edit.change for edit in read_edits(path).edits] == [own] * count + ["monotone"]


def test_monotone_is_the_nearest_line_by_the_rows_of_each_bin() -> None:
    shown = RISE.changed(MODEL).terms[0].scores
    assert shown.tolist() == pytest.approx([0.0, -0.2, 0.0, 0.4])
    fall = Asked(feature="gpus", kind="fall", why="test").changed(MODEL).terms[0].scores
    mean = (-0.2 * 60 + 0.0 * 30 + 0.4 * 10) / 100
    assert fall.tolist() == pytest.approx([0.0, mean, mean, mean])


def test_errors_by_group_and_the_predictions_that_change_most() -> None:
    ended = [Ended("ann", ("1", "5", "V100"), 400.0, "small"),
             Ended("bob", ("8", "5", "V100"), 900.0, "large")]  # fmt: skip
    found = tried(MODEL, CLIP, ended)
    assert [(g.of, g.jobs) for g in found.groups] == [
        ("all jobs", 2), ("1 GPU", 1), ("5 to 8 GPUs", 1),
    ]  # fmt: skip
    large = next(g for g in found.groups if g.of == "5 to 8 GPUs")
    assert large.after - large.before == pytest.approx(0.2)
    assert [one.job_id for one in found.moved] == ["large", "small"]
    before, after = found.moved[0].before_s, found.moved[0].after_s
    assert np.log1p(after) - np.log1p(before) == pytest.approx(-0.2)
    assert found.changed == 2
    assert "from ×0.9" in found.charts[1].label


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Asked(feature="shoes", kind="clip", low="0", high="1", why="x"), "no shape 'shoes'"),
        (Asked(feature="gpus", kind="clip", low="2", high="1", why="x"), "above the highest"),
        (Asked(feature="gpus", kind="clip", low="nan", high="1", why="x"), "a number of at most"),
        (Asked(feature="gpus", kind="fix", low="4", high="2", score="1", why="x"), "not below"),
        (Asked(feature="gpus", kind="drop", why="x"), "Choose a change"),
        (Asked(feature="gpu_type", kind="rise", why="x"), "no shape 'gpu_type'"),
        (Asked(feature="gpus", kind="draw", why="x"), "Nothing was moved"),
        (Asked(feature="gpus", kind="draw", points="2:4", why="x"), "from:to:score"),
        (Asked(feature="gpus", kind="draw", points=":2:30", why="x"), "at most 20"),
    ],
)
def test_what_is_no_change_is_a_sentence(asked: Asked, why: str) -> None:
    with pytest.raises(NoEdit, match=why):
        asked.changed(MODEL)


def test_what_is_dragged_is_what_was_moved() -> None:
    shape = drawing(MODEL, Asked(feature="gpus"))
    assert [(part.start, part.to, part.score) for part in shape.parts] == [
        ("", "2.0", "-0.20"), ("2.0", "4.0", "0.00"), ("4.0", "", "0.40"),
    ]  # fmt: skip
    assert (shape.low, shape.high) == ("-1.70", "1.90")
    assert shape.points(["-0.20", "0.00", "0.40"]) == ""
    assert shape.points(["-0.50", "0.00", "0.70"]) == ":2.0:-0.50;4.0::0.70"
    again = drawing(MODEL, DRAWN)
    assert [(part.score, part.now) for part in again.parts] == [
        ("-0.20", "-0.50"), ("0.00", "0.00"), ("0.40", "0.70"),
    ]  # fmt: skip
    assert again.parts[0].factor == "×0.61"


def test_neighbours_that_are_most_alike_are_dragged_together() -> None:
    spec = MODEL.axes[0].spec
    scores = np.array([0.0, *np.repeat([0.1, 0.5, 0.9], [30, 40, 31])])
    term = Term((0,), scores, np.ones(102), np.zeros(102))
    axis = Axis(spec, cuts=tuple(float(i) for i in range(1, 101)))
    wide = AdditiveModel([axis, *MODEL.axes[1:]], [term], 6.0)
    shape = drawing(wide, Asked(feature="gpus"))
    assert len(shape.parts) == MOST_PARTS
    assert {part.score for part in shape.parts} == {"0.10", "0.50", "0.90"}
    assert [part.to for part in shape.parts][:-1] == [part.start for part in shape.parts][1:]


def test_an_operator_tries_and_saves_in_the_browser(lived: Lived) -> None:
    busy_morning(lived, 6, Random(1))
    lived.settle(5000)
    browser = lived.browser("olga")
    assert lived.browser("ada.byron").get("/models/edit").status_code == 403
    assert "/models/edit" in browser.get("/models").text
    assert "/models/edit" not in lived.browser("ada.byron").get("/models").text
    page = browser.get("/models/edit")
    assert page.status_code == 200
    assert "Save this edit" not in page.text
    asked = {"feature": "gpus", "kind": "clip", "low": "-0.1", "high": "0.1", "why": "a test"}
    page = browser.get("/models/edit", params=asked)
    assert "Errors by group" in page.text
    assert re.search(r"all jobs</th><td class=\"num\" data-label=\"ended\">[1-9]", page.text)
    word = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
    assert word is not None
    path = lived.settings.state_dir / "edits.yaml"
    shown = browser.get("/models/edit", params={"feature": "gpus"}).text
    assert shown.count('type="range"') == 3
    moved = {"feature": "gpus", "kind": "draw", "of": "gpus", "part": ["-0.20", "0.00", "0.10"]}
    assert 'name="points" value="4.0::0.10"' in browser.get("/models/edit", params=moved).text
    other = {**moved, "feature": "user_submitted_1h"}
    assert "Nothing was moved" in browser.get("/models/edit", params=other).text
    without = browser.post("/models/edit", data={**asked, "why": "", "csrf": word[1]})
    assert without.status_code == 422
    assert "Say why" in without.text
    assert not path.exists()
    assert browser.post("/models/edit", data=asked).status_code == 403, "from elsewhere"
    done = browser.post("/models/edit", data={**asked, "csrf": word[1]})
    assert done.headers["location"] == "/models/edit?saved=1"
    assert read_edits(path).edits[0].by == "olga"
    assert "the file holds 1 by now" in browser.get(done.headers["location"]).text


def test_a_reason_is_given_when_it_is_proposed_and_trying_takes_none(lived: Lived) -> None:
    lived.settle(60)
    page = lived.browser("olga").get("/models/edit", params={"feature": "gpus", "kind": "rise"})
    kept = page.text.split('method="post"')[-1]
    assert page.status_code == 200
    assert re.search(r'<input name="why" [^>]*value="" required>', kept)
    assert kept.count('name="why"') == 1


def test_what_nobody_can_tell_yet_says_when_it_is_judged_again(lived: Lived) -> None:
    kept = Proposals(lived.settings.state_dir)
    one = kept.propose(small_bundle(), "", [], by="olga", why="a test", now=1.7e9)
    outlook = "Not enough evidence yet: about 3 weeks more, if it stays as far ahead."
    write(one.folder / JUDGED, Judged(at=1.7e9, version="3", reason="as good", outlook=outlook))
    text = lived.browser("olga").get("/models/proposals").text
    assert '<span class="chip">not yet</span>' in text
    assert outlook in text
    assert "It is judged again on" in text
    assert "2023-11-21 22:13 UTC" in text


@pytest.mark.parametrize("missing", ["params", "file", "bundle"])
def test_where_nothing_judges_no_judgement_is_promised(
    lived: Lived, tmp_path: Path, missing: str
) -> None:
    """The same proposals with a desk and without: an undecided one, one not judged yet, a good one,
    and one that somebody had promoted."""
    lived.settle(60)
    kept = Proposals(lived.settings.state_dir)
    undecided = Judged(at=1.7e9, version="3", reason="as good", outlook="Not enough evidence yet.")
    better = Judged(at=1.7e9, version="4", reason="shorter waits", better=True)
    for number, judged in enumerate((undecided, None, better, better)):
        model = small_bundle().duration
        moved = AdditiveModel(model.axes, model.terms, model.intercept + number, model.link)
        one = kept.propose(Bundle(duration=moved), "", [], by="olga", why="a test", now=1.7e9)
        if judged is not None:
            write(one.folder / JUDGED, judged)
    kept.promote(one.name, by="olga", why="", anyway=False, now=1.7e9)
    browser = lived.browser("olga")
    promises = (
        "It is judged again on", "It is being judged: some minutes.", "It is under way.",
        "/models/proposals/promote", "/models/proposals/back", '<span class="chip">judging</span>',
    )  # fmt: skip
    text = browser.get("/models/proposals").text
    assert [promise in text for promise in promises] == [True] * len(promises)
    assert "Nothing is judged or promoted here" not in text
    assert "judged and promoted here" in browser.get("/models/edit").text
    if missing == "file":
        lived.settings.params = tmp_path / "none.yaml"
    else:
        setattr(lived.settings, missing, None)
    text = browser.get("/models/proposals").text
    assert [promise for promise in promises if promise in text] == []
    assert "Nothing is judged or promoted here" in text
    assert "Not enough evidence yet." in text
    assert "judged and promoted by <code>pellucid promote" in browser.get("/models/edit").text
    word = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/models/edit?kind=rise").text)
    assert word is not None
    fields = {"csrf": word[1], "name": kept.each()[-2].name, "why": "a test"}
    for path in ("promote", "back"):
        done = browser.post(f"/models/proposals/{path}", data=fields)
        assert (done.status_code, "Nothing is promoted here" in done.text) == (422, True)


def test_an_operator_proposes_what_was_tried(lived: Lived) -> None:
    lived.settle(60)
    browser = lived.browser("olga")
    asked = {"feature": "gpus", "kind": "rise", "why": "more GPUs, longer"}
    page = browser.get("/models/edit", params=asked)
    word = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
    assert word is not None
    assert "Propose the models with it" in page.text
    fields = {**asked, "csrf": word[1]}
    assert lived.browser("ada.byron").post("/models/proposals", data=fields).status_code == 403
    assert lived.browser("ada.byron").get("/models/proposals").status_code == 403
    without = browser.post("/models/proposals", data={**fields, "why": ""})
    assert (without.status_code, "Say why" in without.text) == (422, True)
    done = browser.post("/models/proposals", data=fields)
    assert done.headers["location"] == "/models/proposals"
    (one,) = Proposals(lived.settings.state_dir).each()
    made = Bundle.load(one.folder / "bundle")
    about = made.metadata["duration"]
    assert about["edited_terms"] == ["gpus"]
    (edit,) = about["edits"]["edits"]
    assert (edit["by"], edit["why"], edit["monotone"]) == ("olga", "more GPUs, longer", 1)
    assert made.parts == small_bundle().parts
    check(made)
    assert "more GPUs, longer" in browser.get("/models/proposals").text
    judged = Judged(at=1.7e9, version="3", better=True, reason="shorter", compared=["JCT: -3 s"])
    write(one.folder / JUDGED, judged)
    page = browser.get("/models/proposals")
    assert "JCT: -3 s" in page.text
    name = {"name": one.name, "csrf": word[1]}
    assert (
        lived.browser("ada.byron").post("/models/proposals/promote", data=name).status_code == 403
    )
    assert browser.post("/models/proposals/promote", data={"name": one.name}).status_code == 403
    assert browser.post("/models/proposals/promote", data=name).status_code == 303
    assert Proposals(lived.settings.state_dir).one(one.name).wanted is not None
    back = browser.post("/models/proposals/back", data={"why": "", "csrf": word[1]})
    assert (back.status_code, "Say why" in back.text) == (422, True)
