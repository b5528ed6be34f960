"""How long a job should run: what decides says it, cut at the limit, with what it rests on."""

from __future__ import annotations

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.belief import alike_words, belief

SPREAD = (("p50_s", 26.0), ("p90_s", 76.0))


def predicted(seconds: float, evidence: tuple[tuple[str, float], ...] = SPREAD) -> Decision:
    return Decision(
        0, 0.0, Action.ENQUEUE, Reason.SUBMITTED, "j", "vc", estimate_s=seconds, evidence=evidence
    )


def test_the_distribution_is_said_and_not_the_score() -> None:
    found = belief([predicted(368.0)], 300.0, [40.0, 18.0], terms="every job starts at 13 min")
    assert found is not None
    assert (found.p50_s, found.p90_s) == (26.0, 76.0)
    assert found.evidence == "Its owner's last 2 jobs of this name ran 18 s to 40 s"
    assert found.text == (
        "It should run about 26 s; at most 76 s, nine in ten. Its owner's last 2 jobs of this name "
        "ran 18 s to 40 s. The model alone would say 6 min 8 s: every job starts at 13 min."
    )


def test_nothing_is_said_beyond_the_limit() -> None:
    found = belief([predicted(368.0)], 50.0)
    assert found is not None
    assert (found.p50_s, found.p90_s) == (26.0, 50.0)
    assert found.text == "It should run about 26 s; at most 50 s, nine in ten (its time limit)."
    alone = belief([predicted(368.0, ())], 50.0, over=True)
    assert alone is not None
    assert (alone.p50_s, alone.p90_s) == (50.0, None)
    assert alone.text == "It was to run about 50 s (its time limit)."


def test_its_own_progress_is_named_where_it_says_something_else() -> None:
    for stated_s, words in (
        (369.0, "It should run about 26 s; at most 76 s, nine in ten. It asks for 9 epochs."),
        (480.0, "It should run about 8 min, by its own progress."),
    ):
        found = belief([predicted(368.0)], None, command="It asks for 9 epochs.", stated_s=stated_s)
        assert found is not None
        assert found.text == words


def test_the_last_prediction_counts_and_without_one_nothing_is_said() -> None:
    anew = predicted(20.0, (("p50_s", 5.0), ("p90_s", 9.0)))
    found = belief([predicted(368.0), anew], None)
    assert found is not None
    assert (found.p50_s, found.p90_s) == (5.0, 9.0)
    assert belief([], None) is None
    assert (alike_words([]), alike_words([7.0])) == (
        "",
        "Its owner's last job of this name ran 7 s",
    )
