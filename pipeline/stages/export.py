"""Stage `export`: the champion's bundle, which is what the scheduler reads."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from models.bundle import Bundle
from models.training.tracking import champion_bundle
from pipeline.stages.common import BUNDLE, Params, Shown, unseen


def run(params: Params, shown: Shown = unseen) -> str:
    with TemporaryDirectory() as scratch:
        bundle = Bundle.load(champion_bundle(params.mlflow.uri, params.mlflow.model, scratch))
        bundle.save(BUNDLE)
    return f"champion {bundle.digest[:12]} ({', '.join(bundle.parts)})"
