"""The look shared by the report and the page of one job: templates, style sheet, writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report import interactive
from pipeline.report.each_job import EachJob
from scheduler.explain import words


@cache
def environment() -> Environment:
    """Return the environment of this package's templates. Everything is escaped; an undefined name
    is an error.
    """
    env = Environment(
        loader=ChoiceLoader(
            [PackageLoader("pipeline.report"), PackageLoader("scheduler.service.pages")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "act", "clock", "count", "duration", "factor", "listed", "moment", "number", "percent",
    ):  # fmt: skip
        env.filters[name] = getattr(words, name)
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    env.policies["json.dumps_function"] = lambda value, **how: json.dumps(_portable(value), **how)
    return env


def _portable(value: Any) -> Any:
    """Return a value to be drawn, with floats cut to 12 digits: the last ones differ between
    processors.
    """
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {key: _portable(inner) for key, inner in value.items()}
    return [_portable(inner) for inner in value] if isinstance(value, list | tuple) else value


def page(
    template: str,
    *,
    columns: Mapping[str, Any] | None = None,
    charts: bool = False,
    each_job: EachJob | None = None,
    **values: Any,
) -> str:
    """Return a whole page made from a template. With `columns` (of `interactive`) it has figures to
    filter.

    Args:
        charts: it has charts without columns.
        each_job: what its reader may ask of any job.
    """
    css = files("pipeline.report").joinpath("templates/style.css").read_text("utf-8")
    scripts = interactive.scripts(columns is not None) if columns or charts else None
    return (
        environment()
        .get_template(template)
        .render(
            css=Markup(css),
            columns=columns,
            each_job=each_job,
            scripts=scripts,
            policy=scripts.policy if scripts else interactive.policy(),
            **values,
        )
    )


def release() -> str:
    """Return the version of Pellucid."""
    try:
        return version("pellucid")
    except PackageNotFoundError:
        return "unknown"
