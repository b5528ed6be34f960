"""`pellucid claims`: shows how often the service's claims about jobs (forecasts, offers) came
true."""

from __future__ import annotations

import typer

from features.codec import decode
from pipeline.options import spread
from pipeline.printed import aligned
from pipeline.remote import Service, print_json
from scheduler.explain.claims import Record


@spread
def claims(service: Service) -> None:
    """Show how often the service was right when it stated that a job starts at once, that it
    starts by a given time, that it can never start, that there is room for it, or when and how
    it starts, runs and ends after a suggested change.

    A suggested change is counted only if the job's owner made it. A statement that has already
    turned out wrong is counted before the job ends.

    Example:

      pellucid claims
    """
    with service.client() as client:
        found = client.claims()
    if service.as_json:
        print_json(found)
        return
    for line in lines([decode(Record, one) for one in found]):
        typer.echo(line)


def lines(records: list[Record]) -> list[str]:
    """Return a table as lines of text: how often each kind of claim held."""
    if not any(one.judged or one.open for one in records):
        return ["Nothing was claimed yet."]
    from scheduler.explain.words import percent

    table = [["CLAIM", "HELD", "OF", "95 % OF SUCH", "OPEN"]]
    for one in records:
        between = f"{percent(one.low)} to {percent(one.high)}" if one.judged else "-"
        table.append([one.what, str(one.held), str(one.judged), between, str(one.open)])
    return aligned(table)
