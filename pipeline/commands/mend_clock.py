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
        Path | None, typer.Option(help="State folder of the service; holds the models in use.")
    ] = None,
    from_event: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=(
                "The first event dated wrong (`pellucid audit` and pages "
                "number them). Left out: the one after the last leap of a day "
                "before the times that lie in the future."
            ),
        ),
    ] = None,
    began: Annotated[
        datetime | None,
        typer.Option(
            help=(
                "True time of the first event dated wrong, UTC. Default: right after the "
                "event before it."
            )
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason, kept in the log with the change.")] = "",
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
    """Correct a log that a service wrote while its host's clock was ahead. Without this, a time in
    the future stays: every later event is dated even later, whatever the clock is set to.

    First set the host's clock right and stop the service. Nothing changes without --apply. The
    lines of the log stay as they are; one more event states by how much they are dated too late.
    From then on the scheduler decides with the corrected times of running and waiting jobs.
    Forecasts made while the clock was wrong are left out of all figures.

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
