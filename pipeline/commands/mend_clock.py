"""`pellucid mend-clock`: corrects the times in a service's log that it wrote while its clock was
wrong."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.options import DATABASE, JSON_OBJECT


def mend_clock(
    database: DATABASE = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the service's files (its --state-dir), which holds the models it used. "
            "Left out: data/service."
        ),
    ] = None,
    from_event: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=(
                "Number of the first event of the log with a wrong time, as `pellucid audit` and "
                "the pages print it. Left out: the event at which the times last jump by a day or "
                "more before they lie in the future."
            ),
        ),
    ] = None,
    began: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME",
            help=(
                "When the first event with a wrong time truly happened (UTC), e.g. "
                "2026-11-26T14:00:00. Default: right after the event before it."
            ),
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Your reason; the log keeps it with the correction.")
    ] = "",
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help=(
                "Write the correction to the log. Without --apply, only print what would change."
            ),
        ),
    ] = False,
    as_json: JSON_OBJECT = False,
) -> None:
    """Correct the times in a service's log that were written while the host's clock was ahead. The
    log's time never goes back, so setting the clock right is not enough: until this command is run,
    every new event gets a time in the future, too.

    First set the host's clock right, and stop the service. With --apply, one event is added to
    the log, which says which of the events before it are dated too late, and by how much; the
    rows of the log stay as they are. From then on, the corrected times are used. Forecasts that
    were made while the clock was wrong are not counted when their accuracy is shown.

    Examples:

      pellucid mend-clock

      pellucid mend-clock --from-event 4711 --began "2026-11-26 14:00:00" --apply
    """
    with user_errors():
        from scheduler.backends.local.spool import Acks
        from scheduler.service.log.bundles import BundleStore
        from scheduler.service.log.mend import apply as mend
        from scheduler.service.log.mend import find, running
        from scheduler.service.log.store.schema import check
        from scheduler.service.log.store.store import Store, must_exist
        from scheduler.service.settings import read_settings

        settings = read_settings(database=database, state_dir=state_dir)
        must_exist(settings.database)
        store = Store(settings.database)
        check(store)
        now = store.clock.wall()
        since = None if began is None else began.replace(tzinfo=UTC).timestamp()
        wrong, rows = find(store, now, from_event, since), None
        if apply:
            if at_work := running(store):
                raise UserError(f"the service is at work ({', '.join(at_work)}): stop it first")
            bundles = BundleStore(settings.state_dir / "bundles").find
            rows = mend(store, bundles, wrong, actor=getuser(), reason=reason, now=now)
            log = settings.state_dir / "local" / "told.log"
            if log.exists():
                spool = Acks(log)
                spool.mend(wrong.by_s)
                spool.close()
        store.close()
    if as_json:
        typer.echo(json.dumps({**asdict(wrong), "jobs": rows, "applied": apply}))
        return
    typer.echo(wrong.sentence())
    done = f"mended; {rows} jobs have other times" if apply else "nothing was changed: --apply"
    typer.echo(done)
