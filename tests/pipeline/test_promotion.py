"""From candidate to champion: one check for fit, promotion and service; beyond chance only."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from features.job import COUNTERS
from features.rows import Rows, training_rows
from features.schema import TRACE_SCHEMA
from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, Bundle, BundleError
from models.bundle.acceptance import check
from models.bundle.doubts import DOUBTS_NAME, read_doubts
from models.training.duration import fit_at
from models.training.edits import CHANGES, EditError, Edits, apply_edits
from models.training.errors import TrainingError
from models.training.judging import (
    HOUR_S,
    LEVEL,
    LIMITS_S,
    LOOKS,
    TOGETHER,
    Judgement,
    Paired,
    judge,
    undecided,
    weeks_more,
)
from models.training.metrics import auc
from models.training.settled import settled
from models.training.tracking import (
    HERE,
    Registry,
    TrainedOn,
    Version,
    champion,
    former_champion,
    log_training,
)
from pipeline import promotion, replaying
from pipeline.app import app
from pipeline.commands.promote import _jobs
from pipeline.errors import UserError
from pipeline.promotion import accepted, carried_out, judged, proposed
from pipeline.stages import common
from pipeline.traces.synthetic import generate as synthetic
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.venus import TrackError
from scheduler.core.estimates import LiveEstimator
from scheduler.service.log.bundles import BundleStore
from tests.scheduler.service.pages.bundle import small_bundle

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "pipeline/worlds/clusters/demo.yaml"
DEMO = read_cluster(CLUSTER)
FAMILIES = "size", "survival", "burst"
PAGE = (ROOT / "docs/editing-models.md").read_text().split("```yaml\n")[1].split("```")[0]
DOCUMENTED = yaml.safe_load(PAGE)["edits"]
DEMO_BUNDLE = Bundle.load(ROOT / "data/prebuilt/bundle")


@pytest.fixture(scope="module")
def trace() -> pa.Table:
    """Two weeks of 54 users."""
    return synthetic.generate(synthetic.default_config("demo", 0))


@pytest.fixture(scope="module")
def cut(trace: pa.Table) -> float:
    return common.test_from(trace.column("submit_time"), 7)


@pytest.fixture(scope="module")
def rows(trace: pa.Table) -> Rows:
    return training_rows(trace, families=FAMILIES)


def bundle_of(rows: Rows, cut: float) -> Bundle:
    """Durations as the pipeline fits them, in a hurry."""
    fitted = fit_at(rows, cut, seed=0, preset="online")
    return settled(Bundle(duration=fitted.model, metadata={"duration": dict(fitted.metadata)}))


@pytest.fixture(scope="module")
def good(rows: Rows, cut: float) -> Bundle:
    return bundle_of(rows, cut)


@pytest.fixture(scope="module")
def bad(rows: Rows, cut: float) -> Bundle:
    """Learned from durations that were dealt out among the jobs."""
    ended = np.flatnonzero(np.isfinite(rows.y))
    dealt = rows.y.copy()
    dealt[ended] = np.random.default_rng(1).permutation(rows.y[ended])
    histories = ("like_", "user_")
    frame = rows.X.copy()
    for name in frame.select_dtypes("float64"):
        if name.startswith(histories):
            frame[name] = np.random.default_rng(2).permutation(frame[name])
    return bundle_of(replace(rows, X=frame, y=dealt), cut)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of MLflow's, whose tables take it seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[Version, Bundle]:
    """Versions and their bundles, without MLflow, which takes seconds for each."""
    versions: dict[Version, Bundle] = {}
    champions: list[Version] = []
    monkeypatch.setattr(promotion, "bundle_of", lambda version, *_: versions[version])
    monkeypatch.setattr(promotion, "champion", lambda _: champions[-1] if champions else None)
    monkeypatch.setattr(promotion, "promote", lambda version, *_: champions.append(version))
    return versions


def held_as(held: dict[Version, Bundle], bundle: Bundle) -> Version:
    version = Version(number=str(len(held) + 1), run_id="", digest=bundle.digest)
    held[version] = bundle
    return version


@pytest.fixture
def registry(empty: Path, tmp_path: Path) -> Registry:
    (tmp_path / "mlflow.db").write_bytes(empty.read_bytes())
    return Registry(
        tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}", artifact_root=tmp_path / "mlartifacts"
    )


@pytest.fixture
def register(registry: Registry, tmp_path: Path) -> Callable[[Bundle], Version]:
    def registers(bundle: Bundle) -> Version:
        folder = bundle.save(tmp_path / "candidate")
        return log_training(
            folder, params={}, metrics={}, data=TrainedOn(digest="x"), registry=registry
        )

    return registers


# --- judged on the same rows ---------------------------------------------------------------------


def test_a_figure_is_that_of_all_rows_and_its_interval_is_of_users(
    rows: Rows, cut: float, good: Bundle, bad: Bundle
) -> None:
    unseen = rows.where((rows.time >= cut) & np.isfinite(rows.y))
    unseen = replace(unseen, time=HOUR_S * np.arange(len(unseen)))
    user = np.arange(len(unseen)) % 30
    found = judge(good.duration, bad.duration, unseen, user.tolist())
    order, rmse = found.figures
    score = good.duration.score_batch(unseen.X)
    each = [auc(score, unseen.y > limit) for limit in LIMITS_S]
    assert order.candidate == pytest.approx(np.mean(each), abs=1e-12)
    assert rmse.gain == pytest.approx(rmse.champion - rmse.candidate)
    for figure in found.figures:
        assert figure.low < figure.gain < figure.high
    assert (found.rows, found.users) == (len(unseen), 30)
    with pytest.raises(TrainingError, match="100 jobs of 30 users that neither model saw"):
        judge(good.duration, bad.duration, unseen.where(np.arange(len(unseen)) < 100), user[:100])


def test_jobs_that_one_user_submits_at_once_count_as_their_square_root(
    rows: Rows, cut: float, good: Bundle, bad: Bundle
) -> None:
    unseen = rows.where((rows.time >= cut) & np.isfinite(rows.y))
    number = np.arange(len(unseen))
    time = HOUR_S * number
    time[:120] = 0.0  # four jobs of each of thirty users
    judged = replace(unseen, time=time)
    found = judge(good.duration, bad.duration, judged, (number % 30).tolist())
    miss = (good.duration.score_batch(unseen.X) - np.log1p(unseen.y)) ** 2 / np.log(10) ** 2
    weight = np.where(number < 120, 0.5, 1.0)
    rmse = found.figures[1].candidate
    assert rmse == pytest.approx(np.sqrt(weight @ miss / weight.sum()))


def test_a_shift_of_all_estimates_is_no_gain(rows: Rows, cut: float, good: Bundle) -> None:
    """It is one in the mean absolute error, where most jobs run shorter than the mean says."""
    model = good.duration
    unseen = rows.where((rows.time >= cut) & np.isfinite(rows.y))
    truth = np.log1p(unseen.y)
    level = float(np.mean(truth - model.score_batch(unseen.X)))
    fair = AdditiveModel(model.axes, model.terms, model.intercept + level, model.link)
    off = AdditiveModel(model.axes, model.terms, fair.intercept - 0.3, model.link)
    users = (np.arange(len(unseen)) % 30).tolist()
    misses = [np.abs(one.score_batch(unseen.X) - truth).mean() for one in (off, fair)]
    assert misses[0] < misses[1]
    assert not judge(off, fair, unseen, users).better
    assert judge(fair, off, unseen, users).better


def test_the_better_one_is_better_and_the_same_one_is_not(
    trace: pa.Table, good: Bundle, bad: Bundle
) -> None:
    assert judged(good, bad, trace).better
    assert not judged(bad, good, trace).better
    same = judged(good, good, trace)
    assert not same.better
    assert {figure.verdict for figure in same.figures} == {"as good"}


def test_of_models_with_other_features_each_is_given_its_own(
    trace: pa.Table, cut: float, good: Bundle
) -> None:
    fewer = bundle_of(training_rows(trace, families=("size", "calendar")), cut)
    found = judged(good, fewer, trace)
    assert found.better
    assert found.rows > 2000


def told(gain: float, low: float, high: float) -> Paired:
    return Paired(title="AUC", candidate=gain, champion=0.0, gain=gain, low=low, high=high)


def test_what_is_neither_better_nor_worse_says_how_many_weeks_more_it_takes() -> None:
    ahead, behind, better = told(1.0, -1.0, 3.0), told(-1.0, -3.0, 1.0), told(1.0, 0.1, 1.9)
    assert undecided([ahead, behind])
    assert not undecided([ahead, better])
    assert not undecided([ahead, told(-1.0, -1.9, -0.1)])
    assert not undecided([])
    # twice as wide as it may be: four times as many jobs, of which a week is there
    assert weeks_more([ahead, behind], days=7.0) == 3
    assert weeks_more([ahead, told(1.0, -0.5, 2.5)], days=7.0) == 2  # the one that is told first
    assert weeks_more([told(1.0, -0.01, 2.0)], days=7.0) == 1
    assert weeks_more([behind], days=7.0) is None


def test_who_is_as_good_is_promoted_in_fewer_than_five_of_a_hundred_at_all_looks_together() -> None:
    """Sums of as many normal draws as weeks: what a figure is where there is no difference."""
    draw = np.random.default_rng(0).standard_normal((200_000, LOOKS))
    at = np.cumsum(draw, axis=1) / np.sqrt(np.arange(1, LOOKS + 1))
    figures, of_one = 6, (1 - LEVEL) / TOGETHER / 2
    ahead = (at.max(axis=1) > NormalDist().inv_cdf(1 - of_one)).mean()
    assert figures * ahead < 1 - LEVEL
    alone = (at.max(axis=1) > NormalDist().inv_cdf(1 - (1 - LEVEL) / figures / 2)).mean()
    assert figures * alone > 1 - LEVEL, "six would be too few"


# --- promoted ------------------------------------------------------------------------------------


def test_a_champion_that_nobody_can_score_needs_a_person(
    held: dict[Version, Bundle], trace: pa.Table, good: Bundle
) -> None:
    old, new = held_as(held, foreign(good)), held_as(held, good)
    assert proposed(new, HERE, trace, DEMO).better, "there is none yet"
    promotion.promote(old, "by hand", {}, HERE)
    found = proposed(new, HERE, trace, DEMO)
    assert not found.better
    assert "'shoe_size' that is not kept" in found.reason


def test_jobs_that_either_has_seen_are_new_to_neither() -> None:
    def learned(until: str) -> Bundle:
        return Bundle(duration=DEMO_BUNDLE.duration, metadata={"duration": {"window_to": until}})

    early, late = learned("2026-03-01T00:00:00+00:00"), learned("2026-03-03T00:00:00+00:00")
    found = {promotion.seen_until(early, late), promotion.seen_until(late, early)}
    assert found == {1_772_496_000.0}
    with pytest.raises(TrainingError, match="does not say what it learned from"):
        promotion.seen_until(early, Bundle(duration=DEMO_BUNDLE.duration))


def test_who_is_better_on_the_jobs_and_cannot_be_replayed_needs_a_person(
    held: dict[Version, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bundle(duration=small_bundle().duration, metadata=DEMO_BUNDLE.metadata)
    promotion.promote(held_as(held, DEMO_BUNDLE), "by hand", {}, HERE)
    ahead = Judgement(figures=(told(1.0, 0.5, 1.5),), rows=1000, users=30, days=7.0)
    monkeypatch.setattr(promotion, "judged", lambda *_: ahead)

    def unfit(*_: object, **__: object) -> None:
        raise TrackError("job 7 asks for 64 GPUs, of which the cluster has 8")

    monkeypatch.setattr(promotion, "replayed", unfit)
    found = proposed(held_as(held, other), HERE, TRACE_SCHEMA.empty_table(), DEMO)
    assert found.judgement is not None
    assert found.judgement.better
    assert not found.better
    assert not found.undecided
    assert found.reason == "job 7 asks for 64 GPUs, of which the cluster has 8"


def test_a_folder_is_registered_once_with_who_and_why_and_never_if_no_service_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, str]] = []
    known: dict[str, Version] = {}

    def log(folder: Path, *, params: dict[str, str], **_: object) -> Version:
        logged.append(params)
        digest = Bundle.load(folder).digest
        return known.setdefault(digest, Version(number="4", run_id="r", digest=digest))

    monkeypatch.setattr(promotion, "registered", lambda digest, _: known.get(digest))
    monkeypatch.setattr(promotion, "log_training", log)
    folder = small_bundle().save(tmp_path / "one")
    made = {promotion.register(folder, HERE, by="olga", why=why) for why in ("a", "b")}
    assert made == {known[small_bundle().digest]}
    assert logged == [{"proposed_by": "olga", "proposed_why": "a"}]
    odd = foreign(small_bundle()).save(tmp_path / "odd")
    with pytest.raises(BundleError, match="not kept"):
        promotion.register(odd, HERE, by="olga", why="a")
    assert len(logged) == 1


def test_the_command_asks_refuses_goes_through_and_goes_back(
    registry: Registry, register: Callable[[Bundle], Version], trace: pa.Table,
    good: Bundle, bad: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("pipeline.traces.read_dataset", lambda _: trace)
    monkeypatch.setattr(replaying, "MOST_DAYS", 2)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["cluster"] = str(CLUSTER)
    params["mlflow"] |= {
        "uri": registry.tracking_uri, "artifacts": str(registry.artifact_root)
    }  # fmt: skip
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))

    def asked(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            app, ["promote", *words, "--draws", "1", "--out", str(tmp_path / "bundle"),
                  "--params", str(tmp_path / "params.yaml")],
        )  # fmt: skip
        return done.exit_code, done.output + str(done.exception or "")

    one, two = register(good), register(bad)
    assert "say --yes" in asked("1")[1]
    assert champion(registry) is None
    status, said = asked("1", "--yes")
    assert status == 0, said
    assert champion(registry) == one
    status, said = asked()
    assert status == 1
    assert "worse by" in said
    assert "p99 wait in product" in said
    assert "2.0 days replayed once" in said
    assert "Not promoted" in said
    assert "Not enough evidence" not in said, "it is worse"
    assert "needs --why" in asked("--anyway", "--yes")[1]
    assert read_doubts(tmp_path / "bundle", good.digest) == []
    assert champion(registry) == one
    assert json.loads(asked("--preview", "--json")[1])["better"] is False
    assert asked("--anyway", "--why", "a trial", "--yes")[0] == 0
    assert (champion(registry), former_champion(registry)) == (two, one)
    assert Bundle.load(tmp_path / "bundle").digest == bad.digest
    doubts = BundleStore(tmp_path / "kept").body(tmp_path / "bundle", bad.digest)["doubts"]
    assert any(one.startswith("AUC of order") and ": worse by -" in one for one in doubts)
    client = mlflow.MlflowClient(registry.tracking_uri, registry.tracking_uri)
    place = client.get_run(two.run_id).info.artifact_uri
    kept = mlflow.artifacts.load_dict(f"{place}/promotion-of-2.json")
    assert (kept["why"], kept["former"]["digest"]) == ("a trial", good.digest)
    assert kept["judgement"]["figures"]["AUC of order"]["verdict"] == "worse"
    replayed = kept["replay"]["figures"]
    assert {"mean JCT", "p99 wait in product", "long jobs found", "pinball of ln"} <= set(replayed)
    jct = replayed["mean JCT"]
    assert client.get_run(two.run_id).data.metrics["promotion/gain in mean JCT"] == jct["gain"]
    about = client.get_model_version(registry.name, two.number).description
    assert f"mean JCT {jct['candidate']:,.0f} s, the champion's {jct['champion']:,.0f} s" in about
    assert asked("--back", "--yes")[0] == 0
    assert champion(registry) == one
    assert Bundle.load(tmp_path / "bundle").digest == good.digest
    assert not (tmp_path / "bundle" / DOUBTS_NAME).exists(), "the same folder as before"
    for again in (("1", "--yes"), ("--back", "1", "--yes")):  # as after a stop in between
        bad.save(tmp_path / "bundle")
        assert asked(*again)[0] == 0
        assert (champion(registry), former_champion(registry)) == (one, two)
        assert Bundle.load(tmp_path / "bundle").digest == good.digest
    assert '{"version": "1", "already": true}' in asked("1", "--yes", "--json")[1]
    shadow = tmp_path / "shadow"
    told = asked("2", "--shadow", str(shadow), "--json")[1].splitlines()
    assert json.loads(told[0]) == {"version": "2", "shadow": str(shadow)}
    assert "is champion already" in asked("1")[1]
    assert "version 9 is not the former champion: 2 is" in asked("--back", "9", "--yes")[1]
    assert "version 9" in asked("9")[1]


def test_a_candidate_that_nothing_tells_from_the_champion_waits_for_more_jobs(
    held: dict[Version, Bundle], trace: pa.Table, good: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "MOST_DAYS", 1)
    promotion.promote(held_as(held, good), "by hand", {}, HERE)
    found = proposed(held_as(held, good), HERE, trace, DEMO, draws=1)
    assert found.undecided
    assert not found.better
    assert found.evidence()["outlook"] == "Not enough evidence yet, and it is ahead in nothing."
    assert found.judgement is not None
    assert 6.5 < found.judgement.days < 7.5
    ahead = replace(found.judgement, figures=(told(1.0, -1.0, 3.0),))
    told_more = replace(found, judgement=ahead).evidence()
    assert told_more["weeks_more"] == 3
    assert told_more["outlook"] == (
        "Not enough evidence yet: about 3 weeks more, if it stays as far ahead."
    )


def test_the_jobs_to_judge_on_are_such_as_a_service_exports(
    trace: pa.Table, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.parquet"
    pq.write_table(trace, path)
    assert _jobs(path).num_rows == trace.num_rows
    pq.write_table(trace.drop_columns(list(COUNTERS)), path)
    assert _jobs(path).schema == TRACE_SCHEMA, "an earlier release had no counters"
    for others in (trace.drop_columns(["user"]), pa.table({"steps": [1]})):
        pq.write_table(others, path)
        with pytest.raises(UserError, match="its columns are others"):
            _jobs(path)


# --- one check for fit, promotion and service ----------------------------------------------------


def foreign(bundle: Bundle) -> Bundle:
    """Of a feature that is kept of no job."""
    model = bundle.duration
    odd = Axis(FeatureSpec("shoe_size", "continuous", "size"))
    metadata = bundle.metadata
    return Bundle(
        duration=AdditiveModel((*model.axes, odd), model.terms, model.intercept), metadata=metadata
    )


# the two that the page names beside others, of models that have such shapes
OF_CATEGORIES = {"feature": "gpu_type", "fix": {"categories": ["A100"], "score": 0.2}, "why": "a"}
OF_A_PAIR = {"term": ["user_submitted_1h", "gpus"], "drop": True, "why": "a"}
FROM_FIT_TO_SERVICE = {
    **{edit["feature"]: (DEMO_BUNDLE, [edit]) for edit in DOCUMENTED},
    "one after the other": (DEMO_BUNDLE, DOCUMENTED),
    "categories": (small_bundle(), [OF_CATEGORIES]),
    "pair": (small_bundle(), [OF_A_PAIR]),
}


@pytest.mark.parametrize("which", FROM_FIT_TO_SERVICE)
def test_a_documented_edit_goes_from_the_fit_to_the_service(
    which: str, held: dict[Version, Bundle], tmp_path: Path
) -> None:
    """Monotone, the first of the page, was taken by the fit and refused by the service."""
    before, wanted = FROM_FIT_TO_SERVICE[which]
    done = apply_edits(before.duration, Edits.model_validate({"version": 1, "edits": wanted}))
    assert Bundle(duration=done.model).digest != Bundle(duration=before.duration).digest
    bundle = settled(Bundle(duration=done.model, metadata=before.metadata))
    check(bundle)  # as a fit asks
    proposal = promotion.Proposal(candidate=held_as(held, bundle), champion=None)
    carried_out(proposal, "a test", HERE, tmp_path / "bundle")
    taken = BundleStore(tmp_path / "state").take(tmp_path / "bundle")
    assert taken.digest == bundle.digest
    LiveEstimator().use(taken)


def test_the_page_names_each_kind_of_edit_and_no_other() -> None:
    named = {key for edit in DOCUMENTED for key in edit} - {"feature", "why"}
    assert named == set(CHANGES)
    for more in ("categories: [A100]", "term: [x, y]"):
        assert more in PAGE


def test_what_no_service_could_decide_with_is_refused_by_all_in_one_sentence(
    held: dict[Version, Bundle], good: Bundle, tmp_path: Path
) -> None:
    odd, said = foreign(good), set()
    version = held_as(held, odd)
    proposal = promotion.Proposal(candidate=version, champion=None)
    for ask in (
        lambda: check(odd),
        lambda: accepted(version, HERE),
        lambda: carried_out(proposal, "a test", HERE, tmp_path / "bundle"),
        lambda: BundleStore(tmp_path / "state").take(odd.save(tmp_path / "odd")),
        lambda: LiveEstimator().use(odd),
    ):
        with pytest.raises(BundleError) as refused:
            ask()
        said.add(str(refused.value))
    assert len(said) == 1
    assert "wants a feature 'shoe_size' that is not kept" in said.pop()
    assert promotion.champion(HERE) is None, "nothing was moved"


def test_an_edit_against_a_promise_ends_at_the_fit(good: Bundle) -> None:
    wrong = {"feature": "like_user", "monotone": -1, "why": "a test"}
    with pytest.raises(EditError, match="promises"):
        apply_edits(good.duration, Edits.model_validate({"version": 1, "edits": [wrong]}))
