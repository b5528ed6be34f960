"""`pellucid export`: writes the finished jobs of a service as a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.options import DATABASE, JSON_OBJECT


def export(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=("Parquet file to write; it is replaced once the new one is whole."),
        ),
    ],
    database: DATABASE = None,
    as_json: JSON_OBJECT = False,
) -> None:
    """Write the finished jobs of a service as a trace, to learn from or to replay.

    The service does so by itself, each time 1000 more jobs have ended (the setting export_every),
    into STATE_DIR/export/finished.parquet.

    Examples:

      pellucid export finished.parquet --database sqlite:///data/service/pellucid.db

      pellucid ingest finished.parquet --out data/site     # then train and evaluate on it

      pellucid compare --trace data/site --cluster cluster.yaml --policies fifo,pellucid

    The last command shows how long jobs would have waited under FIFO, on the cluster of that file
    (without --cluster: on one inferred from the trace).
    To retrain with dvc, say `source: data/service/export/finished.parquet` in params.yaml and run
    dvc repro; the champion it exports is taken up by the running service.
    """
    with user_errors():
        from features.files import write_table
        from scheduler.service.log.export import finished
        from scheduler.service.log.store.schema import check
        from scheduler.service.log.store.store import Store, must_exist
        from scheduler.service.settings import read_settings

        settings = read_settings(database=database)
        must_exist(settings.database)
        store = Store(settings.database)
        check(store)
        table = finished(store)
        write_table(out, table)
    if as_json:
        typer.echo(json.dumps({"jobs": table.num_rows, "path": str(out)}))
    else:
        typer.echo(f"{table.num_rows:,} finished jobs in {out}")
