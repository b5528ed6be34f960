"""Records training runs and the registered model in MLflow.

A training only registers a candidate. The champion (the version in use) is the version with that
alias; `promote` moves the alias, and stores the evidence with the version.
"""

from __future__ import annotations

import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from mlflow.data.dataset_source import DatasetSource
from mlflow.data.dataset_source_registry import resolve_dataset_source
from mlflow.data.meta_dataset import MetaDataset
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema

from features.survival import HISTORIES, History
from models.bundle import AdditiveModel, Bundle, BundleError
from models.training import pyfunc_bundle
from models.training.card import effects, model_card, write_card
from models.training.export import as_ebm
from models.training.plots import plot_histories, plot_shapes

TRACKING_URI = "sqlite:///mlflow.db"
ARTIFACT_ROOT = "mlartifacts"
EXPERIMENT = "pellucid"
MODEL_NAME = "pellucid-duration"
CHAMPION = "champion"
FORMER = "former-champion"
EBM = "interpret.glassbox._ebm._ebm.ExplainableBoostingRegressor"
NOTE = "mlflow.note.content"  # what the UI shows as the description
SHAPES = "What each feature multiplies the duration by"
PICTURE = "get-artifact?path=shapes.png&run_uuid="  # as the UI's own server gives it
VIEW = "errors"  # of the table of runs: metrics in view
ROWS = "evaluation_rows"  # tag: what the figures are of
DIGEST = "bundle_digest"  # tag of a version
REPLACES = "replaces"  # tag of a version that becomes champion: whose alias moves next
WEEK_MS = 7 * 86_400_000
CANDIDATE = "A candidate: it decides nothing before `pellucid promote`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A registered bundle.

    Attributes:
        number: number of the version.
        run_id: id of the MLflow run that registered it.
        digest: digest of the bundle.
    """

    number: str
    run_id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The MLflow store for runs and models.

    Attributes:
        tracking_uri: URI of the store, a database.
        artifact_root: folder for artifacts. A relative path is relative to the folder in which
            MLflow runs, so that store and artifacts can be moved together.
        name: name of the registered model.
    """

    tracking_uri: str = TRACKING_URI
    artifact_root: str | Path = ARTIFACT_ROOT
    name: str = MODEL_NAME


HERE = Registry()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOn:
    """The data that a bundle was trained on.

    Attributes:
        digest: digest of all the data.
        rows: digest of the rows that the metrics are computed on, without their features.
        source: the trace; None: unknown.
    """

    digest: str
    rows: str = ""
    source: str | Path | None = None


def log_training(
    bundle_path: str | Path,
    *,
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
    data: TrainedOn,
    card: str | None = None,
    registry: Registry = HERE,
    columns: Sequence[str] = (),
    by_week: Mapping[int, Mapping[str, float]] | None = None,
) -> Version:
    """Log a run with its bundle, register the bundle as a candidate, and return the version.

    Also logged with the run are the purified effects (`effects.json`), pictures of the effects and
    of the histories, and the model card.

    Args:
        bundle_path: directory of the exported bundle; it must hold a duration model.
        params, metrics: parameters and metrics to log; metrics that are not finite are left out.
        data: the data that the bundle was trained on.
        card: the model card as HTML; by default one made from the bundle alone.
        registry: the MLflow store.
        columns: names of metrics that MLflow's UI shows as columns, the most important one first.
        by_week: figures of each week, by the number of the week since the epoch; each week is
            logged as one step.
    """
    bundle = Bundle.load(bundle_path)
    with _store(registry.tracking_uri) as client:
        experiment = _experiment(client, Path(registry.artifact_root))
        _view(client, experiment, columns)
        finite = {k: float(v) for k, v in metrics.items() if abs(float(v)) < float("inf")}
        name = registry.name
        figures = [f"{column}: {finite[column]:.4f}" for column in columns[:1] if column in finite]
        about = _about(bundle, figures)
        short = bundle.digest[:12]  # the UI cuts off longer ones
        tags = {"input_digest": data.digest[:12], DIGEST: short, ROWS: data.rows, NOTE: about}
        title = f"bundle {short}"
        with mlflow.start_run(experiment_id=experiment, run_name=title, tags=tags) as run:
            mlflow.log_input(_dataset(bundle, data.digest, data.source), context="training")
            mlflow.log_params(dict(params))
            mlflow.log_metrics(finite)
            for week, figures_then in (by_week or {}).items():
                mlflow.log_metrics({f"by week/{k}": v for k, v in figures_then.items()}, step=week)
            with TemporaryDirectory() as scratch:
                known = [History.read(one) for one in bundle.metadata.get(HISTORIES, ())]
                if known:
                    picture = plot_histories(known, Path(scratch, "histories.png"))
                    mlflow.log_artifact(str(picture))
                mlflow.log_artifact(str(plot_shapes(bundle.duration, Path(scratch, "shapes.png"))))
                page = model_card(bundle) if card is None else card
                mlflow.log_artifact(str(write_card(Path(scratch, "card.html"), page)))
            shapes = json.dumps({"duration": effects(bundle.duration)}, separators=(",", ":"))
            mlflow.log_text(shapes, "effects.json")
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
        client.update_model_version(name, version, description=about)
        client.set_model_version_tag(name, version, DIGEST, bundle.digest)
    return Version(number=version, run_id=run.info.run_id, digest=bundle.digest)


def _about(bundle: Bundle, measured: Sequence[str]) -> str:
    """Return a description of a training run, in Markdown, for its page in MLflow.

    Args:
        measured: figures to name, as text.
    """
    made = bundle.metadata.get("duration", {})
    rows = ""
    if "rows" in made:
        running = int(made.get("running") or 0)
        rows = f" on {made['rows'] - running:,} ended jobs"
        rows += f" and {running:,} that ran" if running else ""
    figures = f" On days it never saw: {'; '.join(measured)}." if measured else ""
    return (
        f"{CANDIDATE}\n\nDuration GA2M of {len(bundle.duration.terms)} terms, trained{rows}; the "
        f"bundle holds {', '.join(bundle.parts)}.{figures}\n\n"
        "Artifacts: `card.html` (the model card), `shapes.png` and `effects.json` (what each "
        "feature adds), `histories.png` (how long whose jobs lasted). The logged model `ebm` opens "
        "in interpret: `mlflow.sklearn.load_model(...).explain_global().data(0)` is the first "
        "shape, and in a notebook `interpret.show` draws them all. It predicts ln(1 + seconds)."
    )


class _Jobs(MetaDataset):  # type: ignore[misc]  # mlflow has no types
    """MLflow's description of a set of training rows: the columns, and the number of rows."""

    def __init__(self, source: DatasetSource, counts: Mapping[str, Any], **named: Any) -> None:
        super().__init__(source, **named)
        self._counts = dict(counts)

    def to_dict(self) -> dict[str, str]:
        return {**super().to_dict(), "profile": json.dumps(self._counts)}


def _dataset(bundle: Bundle, digest: str, source: str | Path | None) -> MetaDataset:
    """Return MLflow's description of the training rows: their source, digest, number and
    columns."""
    made = bundle.metadata.get("duration", {})
    since, until = (str(made.get(name, ""))[:10] for name in ("window_from", "window_to"))
    name = f"jobs {since} to {until}" if since and until else "jobs"
    place = str(Path(source).absolute()) if source is not None else "unknown"
    running = int(made.get("running") or 0)
    counts = {"ended_jobs": int(made.get("rows") or 0) - running, "running_jobs": running}
    return _Jobs(
        resolve_dataset_source(place),
        counts,
        name=name,
        digest=digest[:36],
        schema=_signature(bundle.duration).inputs,
    )


def champion(registry: Registry = HERE) -> Version | None:
    """Return the version of the champion (the model in use); None if there is none. If an earlier
    promotion was interrupted between its two aliases, complete it first."""
    with _store(registry.tracking_uri) as client:
        _mended(client, registry.name)
    return _aliased(registry, CHAMPION)


def former_champion(registry: Registry = HERE) -> Version | None:
    """Return the version that was champion before the present one; None if there was none. If an
    earlier promotion was interrupted between its two aliases, complete it first."""
    with _store(registry.tracking_uri) as client:
        _mended(client, registry.name)
    return _aliased(registry, FORMER)


def versions(registry: Registry = HERE) -> list[Version]:
    """Return every registered version, the newest first."""
    with _store(registry.tracking_uri) as client:
        found = client.search_model_versions(f"name = '{registry.name}'")
        return sorted(map(_version, found), key=lambda one: -int(one.number))


def registered(digest: str, registry: Registry = HERE) -> Version | None:
    """Return the newest version with the bundle of this digest; None if there is none."""
    return next((one for one in versions(registry) if one.digest == digest), None)


def bundle_of(version: Version, registry: Registry, into: str | Path) -> Bundle:
    """Return a version's bundle, copied into the folder `into`. Raise BundleError if the artifacts
    no longer exist."""
    with _store(registry.tracking_uri):
        try:
            folder = mlflow.artifacts.download_artifacts(
                artifact_uri=f"models:/{registry.name}/{version.number}", dst_path=str(into)
            )
        except (MlflowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise BundleError(
                f"artifacts of {registry.name} version {version.number}: {reason}"
            ) from None
    found = sorted(Path(folder).glob("artifacts/*/bundle.json"))
    if not found:
        raise BundleError(
            f"no bundle among the artifacts of {registry.name} version {version.number}"
        )
    return Bundle.load(found[0].parent)


def promote(
    version: Version, reason: str, evidence: Mapping[str, Any], registry: Registry = HERE
) -> None:
    """Make a version the champion, and store the reason and the evidence with it. The version that
    was champion becomes the former champion.

    Args:
        evidence: plain JSON: the comparison with the former champion.
    """
    with _store(registry.tracking_uri) as client:
        name, before = registry.name, champion(registry)
        client.log_dict(version.run_id, dict(evidence), f"promotion-of-{version.number}.json")
        for key, value in (("promoted", "true"), ("promotion_reason", reason)):
            client.set_model_version_tag(name, version.number, key, value)
            client.set_tag(version.run_id, key, value)
        page = str(client.get_run(version.run_id).data.tags.get(NOTE, ""))
        _, _, rest = page.partition("\n\n")
        compared = "".join(f"- {line}\n" for line in evidence.get("compared", ()))
        about = (
            f"Promoted: {reason}.\n\n{compared}\n{rest}"
            if compared
            else (f"Promoted: {reason}.\n\n{rest}")
        )
        for name_of, gain in _gains(evidence).items():
            client.log_metric(version.run_id, f"promotion/{name_of}", gain)
        client.set_tag(version.run_id, NOTE, about)
        client.update_model_version(name, version.number, about)
        if before is not None and before.number != version.number:
            client.set_model_version_tag(name, version.number, REPLACES, before.number)
        client.set_registered_model_alias(name, CHAMPION, version.number)
        _mended(client, name)


def log_serving(
    version: Version, week: int, figures: Mapping[str, float], registry: Registry = HERE
) -> None:
    """Log how a model version performed in a service in one week, to the version's run, as one
    step. Steps logged earlier stay.

    Args:
        week: number of the week since the epoch.
        figures: values by name. They are logged as "serving/NAME".
    """
    at = (week + 1) * WEEK_MS  # the same each time, so that it is kept once
    found = [Metric(f"serving/{name}", float(value), at, week) for name, value in figures.items()]
    with _store(registry.tracking_uri) as client:
        client.log_batch(version.run_id, metrics=found)


def _gains(evidence: Mapping[str, Any]) -> dict[str, float]:
    """Return the candidate's gain in each figure of a promotion's evidence, with names that MLflow
    accepts."""
    parts = [evidence.get(name) or {} for name in ("judgement", "replay")]
    return {
        f"gain in {re.sub(r'[^A-Za-z0-9_. -]', '_', title)}": float(figure["gain"])
        for part in parts
        for title, figure in part.get("figures", {}).items()
    }


def _mended(client: MlflowClient, name: str) -> None:
    """Complete a promotion that was interrupted: give the alias of the former champion to the
    version that the champion's tag names."""
    try:
        found = client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException:
        return
    replaces = found.tags.get(REPLACES)
    if replaces and replaces != str(found.version):
        client.set_registered_model_alias(name, FORMER, replaces)
        client.delete_model_version_tag(name, found.version, REPLACES)


def _aliased(registry: Registry, alias: str) -> Version | None:
    with _store(registry.tracking_uri) as client:
        try:
            return _version(client.get_model_version_by_alias(registry.name, alias))
        except MlflowException:
            return None


def _version(found: Any) -> Version:
    return Version(
        number=str(found.version), run_id=str(found.run_id), digest=found.tags.get(DIGEST, "")
    )


def _register(client: MlflowClient, name: str, info: Any, run_id: str) -> str:
    """Register the logged model `info` as a new version of the model `name`, and return the
    version's number. Unlike mlflow.register_model, print nothing."""
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
    """Store a view of MLflow's table of runs in which `metrics` are columns. The view is opened by
    a link."""
    widths = {f"metrics.`{name}`": 40 + 7 * len(name) for name in metrics}
    columns = list(widths)
    view = {"selectedColumns": columns, "columnOrder": columns, "columnWidths": widths}
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{VIEW}", json.dumps(view))


def _signature(model: AdditiveModel) -> ModelSignature:
    types = {"continuous": DataType.double, "nominal": DataType.string}
    columns = [ColSpec(types[s.kind], s.name, required=False) for s in model.features]
    return ModelSignature(Schema(columns), Schema([ColSpec(DataType.double)]))


def _example(model: AdditiveModel) -> pd.DataFrame:
    """Return one example row for the model: the middle cut of each continuous feature, and the
    first category of each nominal one."""
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
    """Yield a client of MLflow at `tracking_uri`, with few log messages. Restore MLflow's settings
    after the block.

    A relative path in the URI is made absolute, because MLflow keeps one connection per URI: it
    would go to the file of the folder in which it was first used.
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
