"""`pellucid beside`: compares models that make no decisions (a shadow, the former ones) with the
models in use."""

from __future__ import annotations

import typer

from features.codec import decode
from pipeline.options import spread
from pipeline.printed import aligned
from pipeline.remote import Service, print_json
from scheduler.service.log.beside import Standing


@spread
def beside(service: Service) -> None:
    """Compare the models in use with the former ones, and with a shadow (models on trial, which
    predict but decide nothing).

    All predict the same jobs: those that ended since the present models were put to use, and
    those that still run. The error is the mean of |ln(true / predicted duration)|; 0.7 is a
    factor of 2. A job that still runs counts as an error once it has run longer than predicted.
    With too few jobs or users, dashes stand for the figures. `pellucid promote --shadow` puts
    models on trial.

    Example:

      pellucid beside
    """
    with service.client() as client:
        found = client.beside()
    if service.as_json:
        print_json(found)
        return
    for line in lines(decode(Standing, found)):
        typer.echo(line)


def lines(found: Standing) -> list[str]:
    """Return lines of text that compare the shadow and the former models with the models in
    use, or that say which of them are missing."""
    if not found.in_use:
        return ["No models are in use."]
    left = [f"{found.left[:12]} was left for the former models: {found.why}."] if found.left else []
    if not found.beside:
        return [*left, f"{found.in_use[:12]} decides; no shadow or former models stand beside it."]
    table = [["MODELS", "BUNDLE", "JOBS", "ERROR", "IN USE", "DIFFERENCE, 99 %", ""]]
    for one in found.beside:
        figures = ["-", "-", "-"]
        if one.error is not None and one.error_in_use is not None:
            between = f"{one.gain:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
            figures = [f"{one.error:.3f}", f"{one.error_in_use:.3f}", between]
        table.append([one.role, one.digest[:12], str(one.jobs), *figures, one.words])
    return [*left, *aligned(table)]
