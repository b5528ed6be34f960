"""How many jobs and GPUs are about to be asked for, per bin of time.

One additive model of ln(1 + count) for each series and lead; its score is ln(1 + median). Around it
stand the quantiles of what the same kind of forecast missed by on days it was not fitted on, apart
for each level of the forecast. Training and the running system make their rows with the same
function, `arrival_columns`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from features import portable
from features.calendar import BIN_S as BIN_S
from features.spec import FeatureSpec
from models.bundle.additive import AdditiveModel, Explanation
from models.bundle.errors import BundleError

Floats = NDArray[np.float64]

DAY_BINS = 144
SERIES = ("jobs", "gpus")
# weights of the last four hours, each bin 0.7 times the next
FADING = 0.7 ** np.arange(24.0) / (0.7 ** np.arange(24.0)).sum()
WINDOWS = (3, 6, 18, 36, DAY_BINS, 7 * DAY_BINS)


@dataclass(frozen=True, slots=True)
class Lead:
    """The time span that is forecast when bin i has ended: the mean of `width` bins, the first of
    which is bin i + `ahead`.
    """

    name: str
    ahead: int
    width: int = 1


LEADS = (Lead("next", 1), Lead("1h", 6), Lead("24h", DAY_BINS), Lead("soon", 1, 5))


def arrival_specs() -> tuple[FeatureSpec, ...]:
    """Return the features of a row, in order."""
    specs = [
        FeatureSpec(
            name="hour",
            kind="continuous",
            family="calendar",
            unit="h",
            text="local time of the bin forecast",
        ),
        FeatureSpec(
            name="weekday", kind="continuous", family="calendar", unit="", text="0 is Monday"
        ),
        FeatureSpec(
            name="holiday",
            kind="continuous",
            family="calendar",
            unit="",
            text="1 on a listed holiday",
        ),
    ]
    for name in SERIES:
        specs += [
            FeatureSpec(
                name=f"{name}_{lag}_bins_ago",
                kind="continuous",
                family=name,
                unit="ln(1 + n)",
                text=f"{name} asked",
            )
            for lag in range(3)
        ]
        specs += [
            FeatureSpec(
                name=f"{name}_mean_{w}",
                kind="continuous",
                family=name,
                unit="ln(1 + n)",
                text=f"over {w} bins",
            )
            for w in WINDOWS
        ]
        specs.append(
            FeatureSpec(
                name=f"{name}_fading",
                kind="continuous",
                family=name,
                unit="ln(1 + n)",
                text="recent bins weigh most",
            )
        )
        specs += [
            FeatureSpec(
                name=f"{name}_same_time_{d}d",
                kind="continuous",
                family=name,
                unit="ln(1 + n)",
                text="days before",
            )
            for d in (1, 7)
        ]
    specs.append(
        FeatureSpec(
            name="quiet_hour",
            kind="continuous",
            family="jobs",
            unit="",
            text="share of 6 bins with no job",
        )
    )
    return tuple(specs)


def arrival_columns(
    counts: Mapping[str, Floats],
    first_bin_s: float,
    at: NDArray[np.int64],
    lead: Lead,
    *,
    utc_offset_s: float = 0.0,
    holidays: Sequence[str] = (),
) -> dict[str, Floats]:
    """Return rows known at the end of bins `at`, (n,) per feature; NaN where history does not
    reach.

    Args:
        counts: per series, count of every bin, (bins,).
        first_bin_s: start of the first bin, seconds since the epoch.
        at: positions of the last complete bin of each row.
        lead: what is forecast.
        utc_offset_s: local time minus UTC, for the calendar.
        holidays: local dates, ISO ("2020-05-01").
    """
    local: Floats = first_bin_s + utc_offset_s + (at + lead.ahead).astype(np.float64) * BIN_S
    day = np.floor(local / 86_400.0)
    off = {(date.fromisoformat(text) - date(1970, 1, 1)).days for text in holidays}
    columns: dict[str, Floats] = {
        "hour": (local % 86_400.0) / 3600.0,
        "weekday": (day + 3) % 7,  # the epoch was a Thursday
        "holiday": np.isin(day, sorted(off)).astype(np.float64),
    }
    for name in SERIES:
        log = np.log1p(np.asarray(counts[name], dtype=np.float64))
        total = np.concatenate([[0.0], np.cumsum(log)])

        def between(first: NDArray[np.int64], stop: NDArray[np.int64], sums: Floats) -> Floats:
            """Return, for each pair of `first` and `stop`, the mean over the bins i with first <= i
            < stop, computed from `sums`, the cumulative sums before each bin. NaN where `first` is
            before the history or no bin lies between."""
            known = (first >= 0) & (stop > first)
            low, high = np.where(known, first, 0), np.where(known, stop, 1)
            return np.where(known, (sums[high] - sums[low]) / (high - low), np.nan)

        for lag in range(3):
            columns[f"{name}_{lag}_bins_ago"] = between(at - lag, at - lag + 1, total)
        for window in WINDOWS:
            columns[f"{name}_mean_{window}"] = between(at + 1 - window, at + 1, total)
        back = at[:, None] - np.arange(len(FADING))
        columns[f"{name}_fading"] = np.where(
            back[:, -1] >= 0, log[np.maximum(back, 0)] @ FADING, np.nan
        )
        for days in (1, 7):
            middle = at + lead.ahead - days * DAY_BINS
            columns[f"{name}_same_time_{days}d"] = between(
                middle - 2, np.minimum(middle + 3, at + 1), total
            )
        if name == "jobs":
            quiet = np.concatenate([[0.0], np.cumsum(log == 0.0)])
            columns["quiet_hour"] = between(at - 5, at + 1, quiet)
    return columns


@dataclass(frozen=True, slots=True)
class ArrivalForecast:
    """One forecast, in jobs or GPUs per bin.

    Attributes:
        median: as likely exceeded as not; a whole number for a single bin.
        mean: expected count, from what such forecasts were followed by.
        quantiles: level -> count.
        terms: terms of ln(1 + median), exact.
    """

    median: float
    mean: float
    quantiles: Mapping[float, float]
    terms: Explanation


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was observed after past forecasts, grouped by the level of the forecast.

    Attributes:
        levels: cuts of the score, (groups - 1,).
        quantiles: levels of the quantiles, (q,).
        misses: quantiles of ln(1 + count) minus the score, (groups, q).
        means: mean count over the median's count, both plus one, (groups,).
    """

    levels: tuple[float, ...]
    quantiles: tuple[float, ...]
    misses: tuple[tuple[float, ...], ...]
    means: tuple[float, ...]

    def __post_init__(self) -> None:
        groups = len(self.levels) + 1
        if not (len(self.misses) == len(self.means) == groups):
            raise BundleError(f"arrivals: calibration has not {groups} groups throughout")
        if any(len(row) != len(self.quantiles) for row in self.misses):
            raise BundleError("arrivals: calibration rows differ in length from its quantiles")


class ArrivalModel:
    """Forecasts per series and lead.

    Args:
        models: "jobs@next" and so on -> additive model of ln(1 + count).
        calibrations: calibration by the same names.
        utc_offset_s, holidays: see `arrival_columns`.
    """

    in_copies: ClassVar = "shared"  # of a core (`explain.whatif.copies`)

    def __init__(
        self,
        models: Mapping[str, AdditiveModel],
        calibrations: Mapping[str, Calibration],
        *,
        utc_offset_s: float = 0.0,
        holidays: Sequence[str] = (),
    ) -> None:
        names = [spec.name for spec in arrival_specs()]
        for key, model in models.items():
            if [spec.name for spec in model.features] != names or key not in calibrations:
                raise BundleError(f"arrivals: model {key!r} does not read the arrival features")
        try:
            self.holidays = tuple(date.fromisoformat(text).isoformat() for text in holidays)
        except (TypeError, ValueError):
            raise BundleError("arrivals: holidays must be ISO dates") from None
        self.models = dict(models)
        self.calibrations = dict(calibrations)
        self.utc_offset_s = float(utc_offset_s)

    def forecast(
        self, counts: Mapping[str, Floats], first_bin_s: float, series: str, lead: str
    ) -> ArrivalForecast:
        """Return the forecast from the end of the last bin of `counts`. Raise BundleError when
        there is no model for it.
        """
        key = f"{series}@{lead}"
        found = next((x for x in LEADS if x.name == lead), None)
        if key not in self.models or found is None:
            raise BundleError(f"the bundle does not forecast {key!r}")
        at = np.array([len(counts[series]) - 1])
        columns = self.columns(counts, first_bin_s, at, found)
        model = self.models[key]
        explained = model.explain([float(columns[spec.name][0]) for spec in model.features])
        table = self.calibrations[key]
        group = bisect_right(table.levels, explained.score)
        quantiles = {
            level: portable.expm1(explained.score + miss, portable.RATIO)
            for level, miss in zip(table.quantiles, table.misses[group], strict=True)
        }
        median = portable.expm1(explained.score, portable.RATIO)
        mean = (median + 1) * table.means[group] - 1
        return ArrivalForecast(
            round(median) if found.width == 1 else median, max(0.0, mean), quantiles, explained
        )

    def columns(
        self, counts: Mapping[str, Floats], first_bin_s: float, at: NDArray[np.int64], lead: Lead
    ) -> dict[str, Floats]:
        """Return the model's inputs as known at the end of the bins `at`, an array per feature, by
        the model's own time zone and holidays. The arguments are those of `arrival_columns`.
        """
        return arrival_columns(
            counts,
            first_bin_s,
            at,
            lead,
            utc_offset_s=self.utc_offset_s,
            holidays=self.holidays,
        )

    def parts(self) -> tuple[dict[str, Any], dict[str, AdditiveModel]]:
        """Return settings and tables in the form in which a bundle keeps them."""
        tables = {
            key: {
                "levels": list(c.levels),
                "quantiles": list(c.quantiles),
                "misses": [list(row) for row in c.misses],
                "means": list(c.means),
            }
            for key, c in self.calibrations.items()
        }
        return {
            "utc_offset_s": self.utc_offset_s,
            "holidays": list(self.holidays),
            "calibrations": tables,
        }, self.models

    @classmethod
    def from_parts(
        cls, settings: Mapping[str, Any], models: Mapping[str, AdditiveModel]
    ) -> ArrivalModel:
        """Return the model from what `parts` returned."""
        tables = {
            key: Calibration(
                tuple(map(float, c["levels"])),
                tuple(map(float, c["quantiles"])),
                tuple(tuple(map(float, row)) for row in c["misses"]),
                tuple(map(float, c["means"])),
            )
            for key, c in settings["calibrations"].items()
        }
        return cls(
            models,
            tables,
            utc_offset_s=settings["utc_offset_s"],
            holidays=settings["holidays"],
        )


def day_of(seconds: float) -> str:
    """Return the ISO date (UTC) of a time given in seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
