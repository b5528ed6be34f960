"""Calendar features of a job: hour and weekday of its submission, in the site's time zone."""

from __future__ import annotations

from datetime import datetime, tzinfo

from features.spec import FeatureSpec, Value

BIN_S = 600.0  # of forecasts of what arrives
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

SPECS = (
    FeatureSpec(
        name="submit_hour",
        kind="continuous",
        family="calendar",
        unit="h",
        text="hour of the day of submission",
    ),
    FeatureSpec(
        name="submit_weekday",
        kind="nominal",
        family="calendar",
        unit="",
        text="day of the week of submission",
    ),
)


def values(submit_time: float, zone: tzinfo) -> tuple[Value, ...]:
    """Return hour of the day (0 to 24, with fraction) and weekday of a time given in seconds since
    the epoch."""
    local = datetime.fromtimestamp(submit_time, zone)
    hour = local.hour + local.minute / 60 + local.second / 3600
    return hour, WEEKDAYS[local.weekday()]
