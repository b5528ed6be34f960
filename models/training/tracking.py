"""Training runs and the registered model, in MLflow.

The rule of promotion: the challenger and the current champion score the same rows, now; the
challenger becomes champion only if it is better, by more than a stated margin. Of a champion that
can no longer be read, or was fitted on other features, what its run recorded of the same rows
counts; without that a person decides.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Before mlflow is imported: it reports its use to its makers by default.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

import mlflow
import pandas as pd
from mlflow import MlflowClient
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema

from models.bundle import AdditiveModel, Bundle, BundleError
from models.training import pyfunc_bundle
from models.training.card import effects, model_card, write_card
from models.training.errors import TrainingError
from models.training.export import as_ebm
from models.training.plots import plot_shapes

TRACKING_URI = "sqlite:///mlflow.db"
ARTIFACT_ROOT = "mlartifacts"
EXPERIMENT = "pellucid"
MODEL_NAME = "pellucid-duration"
CHAMPION = "champion"
EBM = "interpret.glassbox._ebm._ebm.ExplainableBoostingRegressor"
NOTE = "mlflow.note.content"  # what the UI shows as the description
SHAPES = "What each feature multiplies the duration by"
PICTURE = "get-artifact?path=shapes.png&run_uuid="  # as the UI's own server gives it
VIEW = "errors"  # of the table of runs: metrics in view
ROWS = "evaluation_rows"  # tag: what the compared figure is of
BY_HAND = "to promote it all the same, see docs/pipeline.md"


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What became of a training run.

    Attributes:
        run_id: MLflow run.
        version: version of the registered model.
        promoted: whether it is the champion now.
        reason: why, one line.
        value: the challenger's figure on the evaluation rows.
        champion_value: the former champion's; None without one, or when it is not known.
    """

    run_id: str
    version: str
    promoted: bool
    reason: str
    value: float
    champion_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """By what a challenger is compared with the champion.

    Attributes:
        evaluate: one figure of a duration model on the evaluation rows, higher is better;
            `evaluation.tail_auc` of the latest days is the usual choice.
        figure: what `evaluate` measures, for the reason.
        margin: by how much more than the champion's it must be.
        rows: digest of the evaluation rows, whatever their features: `evaluation.rows_digest`.
    """

    evaluate: Callable[[AdditiveModel], float]
    figure: str = "tail AUC"
    margin: float = 0.0
    rows: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Where runs and models are kept.

    Attributes:
        tracking_uri: MLflow store, a database.
        artifact_root: folder for artifacts; a relative one moves with the folder it is in.
        name: registered model.
    """

    tracking_uri: str = TRACKING_URI
    artifact_root: str | Path = ARTIFACT_ROOT
    name: str = MODEL_NAME


HERE = Registry()


def log_training(
    bundle_path: str | Path,
    contest: Contest,
    *,
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
    input_digest: str,
    card: str | None = None,
    registry: Registry = HERE,
    columns: Sequence[str] = (),
) -> TrackedRun:
    """Logs a run with its bundle, registers the bundle, and promotes it if it is better.

    With the run go the purified effects (`effects.json`), their picture and the model card.

    Args:
        bundle_path: directory of the exported bundle; it must hold a duration model.
        contest: by what it is compared with the champion.
        params, metrics: logged as they are; metrics that are not finite are left out.
        input_digest: digest of what it was trained on.
        card: the model card as HTML; by default one made from the bundle alone.
        registry: where it is kept.
        columns: metrics that the UI shows as columns, beside the one compared.
    """
    bundle = Bundle.load(bundle_path)
    value = float(contest.evaluate(bundle.duration))
    with _store(registry.tracking_uri) as client:
        experiment = _experiment(client, Path(registry.artifact_root))
        _view(client, experiment, (contest.figure, *columns))
        name = registry.name
        champion_value, promoted, reason = _challenge(client, name, value, contest, bundle.parts)
        about = _about(bundle, contest.figure, value, promoted, reason)
        short = bundle.digest[:12]  # the UI cuts off longer ones
        tags = {"input_digest": input_digest[:12], "bundle_digest": short, NOTE: about}
        tags[ROWS] = contest.rows
        title = f"bundle {short}"
        with mlflow.start_run(experiment_id=experiment, run_name=title, tags=tags) as run:
            mlflow.log_input(_dataset(bundle, input_digest), context="training")
            mlflow.log_params(dict(params))
            finite = {k: float(v) for k, v in metrics.items() if abs(float(v)) < float("inf")}
            mlflow.log_metrics({**finite, contest.figure: value} if value == value else finite)
            with TemporaryDirectory() as scratch:
                mlflow.log_artifact(str(plot_shapes(bundle.duration, Path(scratch, "shapes.png"))))
                page = model_card(bundle) if card is None else card
                mlflow.log_artifact(str(write_card(Path(scratch, "card.html"), page)))
            mlflow.log_dict({"duration": effects(bundle.duration)}, "effects.json")
            info = mlflow.pyfunc.log_model(
                name="model",
                python_model=str(Path(pyfunc_bundle.__file__)),
                artifacts={"bundle": str(Path(bundle_path).resolve())},
                signature=_signature(bundle.duration),
                input_example=_example(bundle.duration),
                pip_requirements=["pellucid"],
            )
            mlflow.sklearn.log_model(
                as_ebm(bundle.duration),
                name="ebm",
                serialization_format="skops",  # nothing is pickled
                skops_trusted_types=[EBM],
                signature=_signature(bundle.duration),
                pip_requirements=[f"interpret-core=={installed('interpret-core')}", "skops"],
            )
            version = _register(client, name, info, run.info.run_id)
            mlflow.set_tag(NOTE, f"{about}\n\n![{SHAPES}]({PICTURE}{run.info.run_id})")
            mlflow.set_tags({"promoted": str(promoted).lower(), "promotion_reason": reason})
        client.update_model_version(name, version, description=about)
        client.set_model_version_tag(name, version, "bundle_digest", bundle.digest)
        client.set_model_version_tag(name, version, "promotion_reason", reason)
        if promoted:
            client.set_registered_model_alias(name, CHAMPION, version)
    return TrackedRun(run.info.run_id, version, promoted, reason, value, champion_value)


def _about(bundle: Bundle, figure: str, value: float, promoted: bool, reason: str) -> str:
    """What a run is, for the page that MLflow gives it: Markdown."""
    made = bundle.metadata.get("duration", {})
    rows = f" on {made['rows']:,} ended jobs" if "rows" in made else ""
    became = "It became" if promoted else "It did not become"
    return (
        f"Duration GA2M of {len(bundle.duration.terms)} terms, trained{rows}; the bundle holds "
        f"{', '.join(bundle.parts)}. {figure[:1].upper()}{figure[1:]} on days it never saw: "
        f"{value:.4f}. {became} champion: {reason}.\n\n"
        "Artifacts: `card.html` (the model card), `shapes.png` and `effects.json` (what each "
        "feature adds). The logged model `ebm` opens in interpret: "
        "`interpret.show(mlflow.sklearn.load_model(...).explain_global())`; it predicts "
        "ln(1 + seconds)."
    )


def _dataset(bundle: Bundle, digest: str) -> MetaDataset:
    """The training rows as MLflow names a dataset: where from, which, and their columns."""
    made = bundle.metadata.get("duration", {})
    since, until = (str(made.get(name, ""))[:10] for name in ("window_from", "window_to"))
    name = f"jobs {since} to {until}" if since and until else "jobs"
    source = CodeDatasetSource({"mlflow.source.name": "pipeline.stages.features"})
    schema = _signature(bundle.duration).inputs
    return MetaDataset(source, name=name, digest=digest[:36], schema=schema)


def champion_bundle(
    tracking_uri: str = TRACKING_URI, name: str = MODEL_NAME, into: str | Path | None = None
) -> Path:
    """Directory of the champion's bundle, copied into the folder `into` if one is given.

    Raises TrainingError when there is no champion.
    """
    with _store(tracking_uri) as client:
        return _champion(client, name, into)


def _challenge(
    client: MlflowClient,
    name: str,
    value: float,
    contest: Contest,
    parts: Collection[str],
) -> tuple[float | None, bool, str]:
    """(champion's figure, promoted, reason). `parts`: the models the challenger holds."""
    figure, margin = contest.figure, contest.margin
    held, apart = frozenset(parts), ""
    with TemporaryDirectory() as scratch:
        try:
            champion = Bundle.load(_champion(client, name, scratch))
            former, held = float(contest.evaluate(champion.duration)), frozenset(champion.parts)
        except TrainingError:
            return None, True, "first version"
        except BundleError as error:
            former, apart = _recorded(client, name, contest), f"cannot score them now: {error}"
    if former != former:
        return None, False, f"no {figure} of the champion on these rows{_also(apart)}; {BY_HAND}"
    more = sorted(set(parts) - held)
    lack = apart or (f"has no {more[0]} model" if more else "")
    if value == former and lack:
        return former, True, f"{figure} {value:.4f} is the champion's, which {lack}"
    better = value > former + margin
    by = f" by more than {margin:g}" if margin else ""
    text = f"is{'' if better else ' not'} above the champion's {former:.4f}{by}{_also(apart)}"
    return former, better, f"{figure} {value:.4f} {text}"


def _also(apart: str) -> str:
    return f", which {apart}" if apart else ""


def _recorded(client: MlflowClient, name: str, contest: Contest) -> float:
    """The figure that the champion's own run recorded; NaN unless it is of the same rows."""
    try:
        version = client.get_model_version_by_alias(name, CHAMPION)
        run = client.get_run(str(version.run_id)).data
    except MlflowException:
        return float("nan")
    same = contest.rows and run.tags.get(ROWS) == contest.rows
    return float(run.metrics.get(contest.figure, "nan")) if same else float("nan")


def _champion(client: MlflowClient, name: str, into: str | Path | None) -> Path:
    try:
        version = client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException:
        raise TrainingError(f"registered model {name!r} has no {CHAMPION}") from None
    try:
        folder = mlflow.artifacts.download_artifacts(
            artifact_uri=f"models:/{name}/{version.version}",
            dst_path=None if into is None else str(into),
        )
    except (MlflowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BundleError(f"artifacts of {name} version {version.version}: {reason}") from None
    found = sorted(Path(folder).glob("artifacts/*/bundle.json"))
    if not found:
        raise BundleError(f"no bundle among the artifacts of {name} version {version.version}")
    return found[0].parent


def _register(client: MlflowClient, name: str, info: Any, run_id: str) -> str:
    """Version number of the logged model; what mlflow.register_model does, without its prints."""
    with suppress(MlflowException):  # it exists already
        client.create_registered_model(
            name, description=f"What `dvc repro` exports is the version with alias {CHAMPION}."
        )
    version = client.create_model_version(
        name, source=info.model_uri, run_id=run_id, model_id=info.model_id
    )
    return str(version.version)


def _experiment(client: MlflowClient, artifact_root: Path) -> str:
    existing = client.get_experiment_by_name(EXPERIMENT)
    if existing is not None:
        return str(existing.experiment_id)
    artifact_root.mkdir(parents=True, exist_ok=True)
    # Without the tag the UI opens in its view for language-model applications.
    tags = {"mlflow.experimentKind": "custom_model_development"}
    # MLflow keeps absolute places only. A relative one is kept as seen from wherever MLflow runs:
    # the folder can be moved, database and artifacts together.
    here = artifact_root if artifact_root.is_absolute() else Path("/proc/self/cwd", artifact_root)
    location = here.as_uri()
    made = str(client.create_experiment(EXPERIMENT, artifact_location=location, tags=tags))
    about = (
        "Models of job durations, one run per training; the champion is what is exported. "
        f"[Runs with their errors](#/experiments/{made}/runs?viewStateShareKey={VIEW})"
    )
    client.set_experiment_tag(made, NOTE, about)
    return made


def _view(client: MlflowClient, experiment: str, metrics: Sequence[str]) -> None:
    """A view of the table of runs, by a link: by itself the UI shows no metric as a column."""
    widths = {f"metrics.`{name}`": 40 + 7 * len(name) for name in metrics}
    columns = list(widths)
    view = {"selectedColumns": columns, "columnOrder": columns, "columnWidths": widths}
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{VIEW}", json.dumps(view))


def _signature(model: AdditiveModel) -> ModelSignature:
    types = {"continuous": DataType.double, "nominal": DataType.string}
    columns = [ColSpec(types[s.kind], s.name, required=False) for s in model.features]
    return ModelSignature(Schema(columns), Schema([ColSpec(DataType.double)]))


def _example(model: AdditiveModel) -> pd.DataFrame:
    """One job as the model takes it: of each feature the middle cut, or the first category."""
    return pd.DataFrame(
        {
            axis.spec.name: [
                (axis.categories or (None,))[0]
                if axis.spec.kind == "nominal"
                else float(axis.cuts[len(axis.cuts) // 2] if axis.cuts else 0.0)
            ]
            for axis in model.axes
        }
    )


@contextmanager
def _store(tracking_uri: str) -> Iterator[MlflowClient]:
    """MLflow pointed at `tracking_uri`, quiet, and put back afterwards.

    It keeps a connection for each URI: of a relative one it would be to the file of whoever asked
    first, wherever that was.
    """
    if tracking_uri.startswith("sqlite:///") and not tracking_uri.startswith("sqlite:////"):
        tracking_uri = f"sqlite:///{Path(tracking_uri.removeprefix('sqlite:///')).absolute()}"
    quiet = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in quiet]
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    for logger in quiet:
        logger.setLevel(logging.ERROR)
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_registry_uri(tracking_uri)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*input example was not provided")
            yield MlflowClient(tracking_uri, tracking_uri)
    finally:
        mlflow.set_tracking_uri(before[0])
        mlflow.set_registry_uri(before[1])
        for logger, level in zip(quiet, levels, strict=True):
            logger.setLevel(level)
