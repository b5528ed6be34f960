"""Stage `export`: exports the bundle of the champion (the model in use), which the scheduler reads.

The very first candidate becomes champion here. A later candidate does only if the parameter
`mlflow.promote` is set and it is better beyond chance, and never in a DVC experiment. Otherwise use
`pellucid promote`.
"""

from __future__ import annotations

import json

from features.given import LARGE, read_text
from models.bundle import Bundle
from models.training.tracking import champion, registered
from pipeline.promotion import accepted, carried_out, in_experiment, proposed
from pipeline.stages.common import BUNDLE, CANDIDATE, METRICS, TRACE, Params, Shown, unseen
from pipeline.stages.evaluate import chosen, registry_of, track
from pipeline.traces import read_dataset
from pipeline.worlds.cluster_file import read_cluster


def run(params: Params, shown: Shown = unseen) -> str:
    registry, candidate = registry_of(params), Bundle.load(CANDIDATE)
    version = registered(candidate.digest, registry)
    if version is None:  # its evaluation was not run again, and the registry is another one
        found = json.loads(read_text(METRICS / "evaluate.json", LARGE))
        version = track(CANDIDATE, found, chosen(params), registry=registry)
    present = champion(registry)
    if present is None and in_experiment():
        candidate.save(BUNDLE)
        return f"candidate {candidate.digest[:12]}: an experiment makes no champion"
    automatic = params.mlflow.promote == "beyond-chance" and not in_experiment()
    noted = ""
    if present is None or (automatic and present.digest != candidate.digest):
        cluster = read_cluster(params.cluster)
        proposal = proposed(version, registry, read_dataset(TRACE), cluster)
        noted = f"; {proposal.reason}"
        if proposal.better:
            carried_out(proposal, proposal.reason, registry, BUNDLE, by="dvc repro")
            present = version
    elif present.digest != candidate.digest:
        noted = f"; version {version.number} is a candidate: pellucid promote {version.number}"
    bundle = accepted(present or version, registry)
    bundle.save(BUNDLE)
    return f"champion {bundle.digest[:12]} ({', '.join(bundle.parts)}){noted}"
