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
        Path | None,
        typer.Option(
            help="Folder of the service's files (its --state-dir), which holds the models it used. "
            "Left out: data/service."
        ),
    ] = None,
    head: Annotated[
        bool,
        typer.Option(
            "--head",
            help="Check nothing. Print the head: the last hash of the log's chain, to keep on "
            "another machine.",
        ),
    ] = False,
    since_head: Annotated[
        Path | None,
        typer.Option(
            help="File with an earlier output of --head. Also check that the log still begins with "
            "the log of that time."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="File, readable by you alone, with a secret of 32 bytes or more. With --head: "
            "sign the head. With --since-head: check the signature."
        ),
    ] = None,
    decide_again: Annotated[
        bool,
        typer.Option(
            "--decide-again",
            help="Also compute every decision again from the log, and print the first that "
            "differs.",
        ),
    ] = False,
    as_json: JSON_OBJECT = False,
) -> None:
    """Check that a service's database agrees with the service's log, which is kept in it. The
    database is not changed, and the service may be running.

    Every table that can be computed from the log is computed again and compared. So are the hashes
    by which each row of the log depends on the row before (its hash chain): rows that anything but
    the service changed, deleted or added are printed. Then the database checks its own integrity.

    Exit status 0: all agrees. 1: something differs; the first ten differences are printed, and
    for those from the log the event at which each begins. 2: nothing was checked, because the
    database, the models or a policy of your own is missing.

    With --decide-again, the exit status is also 1 if another release of this software decides
    differently, which is no damage. If somebody rewrote the log with all its hashes, only
    --since-head can show it.

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
