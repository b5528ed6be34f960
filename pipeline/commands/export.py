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
            help="Parquet file to write. An existing one is replaced once the new one is complete.",
        ),
    ],
    database: DATABASE = None,
    as_json: JSON_OBJECT = False,
) -> None:
    """Write the finished jobs of a service to a file, as a trace to learn from or to replay.

    The service also does this itself, whenever 1000 more jobs have ended (its setting
    export_every), to export/finished.parquet in its --state-dir.

    Examples:

      pellucid export finished.parquet --database sqlite:///data/service/pellucid.db

      pellucid ingest finished.parquet --out data/site     # then train and evaluate on it

      pellucid compare --trace data/site --cluster cluster.yaml --policies fifo,pellucid

    The last example shows how long these jobs would have waited under first in, first out (fifo).
    To train new models on them with dvc, write `source: data/service/export/finished.parquet` in
    params.yaml and run `dvc repro`; the running service then uses the new models.
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
