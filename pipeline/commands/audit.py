"""`pellucid audit`: checks whether everything in a service's database follows from its log of
events."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import bar, user_errors
from pipeline.options import DATABASE, JSON_OBJECT

SHOWN = 10


def audit(
    database: DATABASE = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="State folder of the service; holds the models in use.")
    ] = None,
    head: Annotated[
        bool,
        typer.Option(
            "--head",
            help=("Print how far the log's hash chain reaches, to keep elsewhere; audit nothing."),
        ),
    ] = False,
    since_head: Annotated[
        Path | None,
        typer.Option(help="A file that --head printed: the log must still extend it."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="A secret of 32 bytes or more that signs the head, or checks it."),
    ] = None,
    decide_again: Annotated[
        bool,
        typer.Option(
            "--decide-again",
            help=("Also take every decision again, and name the first that differs."),
        ),
    ] = False,
    as_json: JSON_OBJECT = False,
) -> None:
    """Check a service's database against its log. Every table that follows from the log is computed
    again and compared, as are the digests of the decisions and the hash chain of the log's rows;
    then the database checks its own integrity.

    The service may be running: the database is read as of one moment and not changed. Exit status
    0: the tables follow from the log. 1: they do not; the first difference is printed with the
    event at which it begins. 2: nothing was checked, because something is missing here: a policy
    of your own that cannot be imported, models, the database.

    With --decide-again this code, with these models, takes every decision again and names the
    first that differs. Code of another release may decide otherwise: that is no damage, and the
    exit status is 1 all the same.

    A row that was altered, deleted or added by anything but the service is named. If somebody
    rewrites the whole chain, only an earlier --head (the chain's last hash) shows it: keep one on
    another machine.

    Examples:

      pellucid audit --database sqlite:///data/service/pellucid.db

      pellucid audit --decide-again

      pellucid audit --head --key head.key > head.json; pellucid audit --since-head head.json

      pellucid audit --database postgresql://pellucid@db/pellucid --json | jq .divergences[0]
    """
    with user_errors():
        from sqlalchemy.exc import DatabaseError

        from scheduler.service.log.audit import audit as run
        from scheduler.service.log.bundles import BundleStore
        from scheduler.service.log.store.schema import check
        from scheduler.service.log.store.store import Store, must_exist
        from scheduler.service.log.tamper import as_json as as_text
        from scheduler.service.log.tamper import head_of, read_head, read_key
        from scheduler.service.settings import read_settings

        settings = read_settings(database=database, state_dir=state_dir)
        must_exist(settings.database)
        store = Store(settings.database)
        check(store)
        secret = None if key is None else read_key(key)
        if head:
            with store.reading() as connection:
                found_head = head_of(connection, store.last_seq_in(connection), store.clock.now())
            typer.echo(as_text(found_head if secret is None else found_head.signed(secret)))
            return
        extends = None if since_head is None else read_head(since_head, secret)
        try:
            events = store.last_seq()
        except DatabaseError:  # what the audit says of
            events = 0
        with bar("events", events, as_json) as step:
            find = BundleStore(settings.state_dir / "bundles").find
            found = run(store, find, step, head=extends, decide_again=decide_again)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "clean": found.clean}, default=str))
    else:
        typer.echo(
            f"{found.events:,} events, {found.passes:,} passes, {found.decisions:,} decisions, "
            f"{found.jobs:,} jobs; checked by code {found.code}"
        )
        if decide_again:
            typer.echo(f"{found.decided_again:,} passes decided again, to the same decisions")
        typer.echo(f"{found.links:,} links of the chain; pages by {found.checked_by}")
        if extends is not None and key is None:
            typer.echo("the signature of the head was not checked: --key")
        lines = [one.sentence() for one in found.tampered]
        lines += [one.sentence() for one in found.divergences]
        lines += [f"damaged: {line}" for line in found.damage]
        for line in lines[:SHOWN]:
            typer.echo(line)
        if len(lines) > SHOWN:
            typer.echo(f"and {len(lines) - SHOWN} more")
        typer.echo("clean" if found.clean else "the database does not follow from its log")
    if not found.clean:
        raise typer.Exit(1)
