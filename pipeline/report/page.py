"""Makes HTML pages, with the templates and style sheet that the report and the page of one job
share."""

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
from pipeline.report.filtered import specifications
from scheduler.explain import words
from scheduler.explain.story import checked_words


@cache
def environment() -> Environment:
    """Return the jinja environment for this package's templates. All values are escaped, and an
    undefined name is an error."""
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
    env.filters["checked_words"] = checked_words
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    env.policies["json.dumps_function"] = lambda value, **how: json.dumps(_portable(value), **how)
    return env


def _portable(value: Any) -> Any:
    """Return a value for a chart with its floats rounded to 12 digits, because the last digits
    differ between processors."""
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
    """Return a whole HTML page made from a template.

    Args:
        charts: whether the page has charts though it has no columns.
        each_job: data with which the page explains any job.
        columns: data of each job, from `interactive.columns`, for figures that a reader can filter.
        values: values for the template.
    """
    css = files("pipeline.report").joinpath("templates/style.css").read_text("utf-8")
    scripts = interactive.scripts(columns is not None) if columns or charts else None
    return (
        environment()
        .get_template(template)
        .render(
            css=Markup(css),
            columns=columns,
            drawings=specifications(columns) if columns else None,
            each_job=each_job,
            scripts=scripts,
            policy=scripts.policy if scripts else interactive.policy(),
            **values,
        )
    )


def release() -> str:
    """Return the version of Pellucid; "unknown" if it is not installed as a package."""
    try:
        return version("pellucid")
    except PackageNotFoundError:
        return "unknown"
