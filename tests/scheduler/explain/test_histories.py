"""Pictures of histories are of what decides: they change with it, and say what it says."""

from __future__ import annotations

import pytest

from features.job import Job
from features.schema import State
from features.state import FeatureError, FeatureState
from features.survival import EDGES_S, HISTORIES, History
from models.bundle import Bundle
from scheduler.charts.histories import of_bundle, picture, pictures
from scheduler.core.estimates import HistoriesEstimator
from scheduler.explain.histories import known, next_of, rests_on, survivors
from scheduler.explain.render import known_words, next_words
from scheduler.explain.render import rests_on as rests_on_words

NOW = 1_600_000_000.0
ASKED = Job("next", NOW + 1e6, 2, user="ada", vc="vision", name="train.py")


def lived(lasts_s: float, user: str = "ada", jobs: int = 8) -> HistoriesEstimator:
    """After some jobs of one user that all lasted as long."""
    found, now = HistoriesEstimator(), NOW
    for i in range(jobs):
        job = Job(str(i), now, 2, user=user, vc="vision", name="train.py")
        found.submitted(job, now)
        found.started(job.job_id, now)
        now += lasts_s
        found.ended(job.job_id, State.COMPLETED, lasts_s, now)
    return found


def of(estimator: HistoriesEstimator, job: Job = ASKED) -> dict[str, History]:
    return {one.level: one for one in estimator.state.histories(job, job.submit_time)}


def test_the_narrowest_history_is_what_a_prediction_is_made_of() -> None:
    estimator = lived(5000.0)
    found, predicted = of(estimator), estimator.estimate(ASKED, ASKED.submit_time).seconds
    assert list(found) == ["all", "vc_gpus", "user", "template"]
    shown = survivors(found["template"].hazards)
    decides = [1.0 - predicted.share_ended(edge) for edge in EDGES_S]  # type: ignore[attr-defined]
    assert shown == pytest.approx(decides)
    # what is drawn as the wider group's is that of the next wider picture
    for narrow, wide in (("template", "user"), ("user", "vc_gpus"), ("vc_gpus", "all")):
        assert found[narrow].wider == found[wide].hazards


def test_a_falsified_history_has_another_picture_and_another_prediction() -> None:
    true, false = lived(5000.0), lived(50_000.0)
    before, after = (next_of(of(one)["user"]) for one in (true, false))
    assert before.p50_s < 7200.0 < 21_600.0 < after.p50_s
    first, other = (one.estimate(ASKED, NOW + 1e6).value for one in (true, false))
    assert first < other
    charts = [picture(of(one)["user"], "h") for one in (true, false)]
    assert charts[0].rows != charts[1].rows
    assert charts[0].spec != charts[1].spec
    assert charts[0].label != charts[1].label
    # another user's jobs move the wider groups alone
    assert of(lived(5000.0, "bob"))["user"].ended == (0.0,) * 17
    assert sum(of(lived(5000.0, "bob"))["vc_gpus"].ended) > 1.0


def test_bars_are_the_jobs_that_ended_there() -> None:
    history = of(lived(5000.0))["user"]
    (stretch,) = [i for i, jobs in enumerate(history.ended) if jobs]
    assert EDGES_S[stretch - 1] < 5000.0 <= EDGES_S[stretch]
    bars = picture(history, "h").spec["layer"][0]["data"]["values"]
    assert [bar["jobs"] for bar in bars] == list(history.ended)
    assert picture(history, "h").rows[stretch][1] == f"{history.ended[stretch]:.1f}"


def test_a_running_job_is_in_it_and_its_own_place_is_marked() -> None:
    estimator = lived(50.0)
    going = Job("long", NOW + 1000, 2, user="ada", vc="vision", name="train.py")
    estimator.submitted(going, going.submit_time)
    estimator.started("long", going.submit_time)
    later = going.submit_time + 40_000.0
    asked = Job("next", later, 2, user="ada", vc="vision", name="train.py")
    history = of(estimator, asked)["user"]
    assert history.reached[10] > 0.0
    assert "that still run" in known_words(known(history))
    marked = picture(history, "h", 40_000.0)
    lines = marked.spec["layer"][1]["data"]["values"]
    place = [point["lasted"] for point in lines if point["name"] == "this job now"]
    assert place == [40_000.0, 40_000.0]


def test_what_was_outlived_is_certain() -> None:
    history = of(lived(5000.0))["user"]
    shown = survivors(history.hazards, 3600.0)
    assert all(share == 1.0 for share, edge in zip(shown, EDGES_S, strict=False) if edge <= 3600.0)
    assert next_of(history, 3600.0).p50_s >= 3600.0
    assert next_words(next_of(history, 3600.0), 3600.0).startswith("Of those that run over 1 h")
    assert [seconds for seconds, _ in next_of(history, 3600.0).odds] == [21_600.0, 86_400.0]
    assert survivors(history.hazards, 1e9) == [1.0] * len(EDGES_S)


def test_without_a_job_the_words_say_so() -> None:
    nobody = HistoriesEstimator().state.histories(ASKED, ASKED.submit_time)
    assert rests_on(nobody) is None
    assert "No such job was seen yet" in known_words(known(nobody[-1]))
    lives = lived(5000.0).state.histories(ASKED, ASKED.submit_time)
    found = rests_on(lives)
    assert found is not None
    assert rests_on_words(found).startswith("ada's jobs named like train.py: ")
    assert [c.title[:5] for c in pictures(lives)] == ["Ada's", "Ada's", "Jobs ", "All j"]
    with pytest.raises(FeatureError, match="not kept"):
        FeatureState({"size"}).histories(ASKED, ASKED.submit_time)


def test_a_bundle_keeps_them_to_four_digits() -> None:
    known = lived(5000.0).state.histories(ASKED, ASKED.submit_time)
    bundle = Bundle(metadata={HISTORIES: [one.plain() for one in known]})
    assert [chart.title for chart in of_bundle(bundle)][-1] == "Ada's jobs named like train.py"
    again = History.read(known[-1].plain())
    assert again.hazards == pytest.approx(known[-1].hazards, rel=1e-3)
    with pytest.raises(ValueError, match="17 stretches"):
        History.read(known[-1].plain() | {"ended": [1.0]})
    assert of_bundle(Bundle()) == []


@pytest.mark.parametrize("outlived_s", [0.0, 60.0, 3600.0, 40_000.0])
def test_half_of_those_that_outlive_it_last_longer_than_the_median(outlived_s: float) -> None:
    for history in of(lived(5000.0)).values():
        found = next_of(history, outlived_s)
        left = survivors(history.hazards, outlived_s)
        for seconds, share in ((found.p50_s, 0.5), (found.p90_s, 0.1)):
            longer = [one for one, edge in zip(left, EDGES_S, strict=False) if edge >= seconds]
            shorter = [one for one, edge in zip(left, EDGES_S, strict=False) if edge <= seconds]
            assert max(longer, default=0.0) - 1e-9 <= share <= min(shorter, default=1.0) + 1e-9
