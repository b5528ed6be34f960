"""A recording in other units of time: a second of the run stands for a minute of a site.

Jobs of seconds cannot be forecast by what knows sites: an hour without arrivals, a day that comes
again. Every time that Slurm printed is made longer by one factor, so nothing is decided otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.slurm.recording import Look, Recording, Truth
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.policies.slurm.priority import duration_s
from scheduler.policies.slurm.site import Partition, Reservation, Site

# of SchedulerParameters that are times, with Slurm's own values where they are not set
PARAMETERS = {
    "sched_interval": 60.0, "batch_sched_delay": 3.0, "bf_interval": 30.0, "bf_resolution": 60.0,
    "bf_window": 1440.0,
}  # fmt: skip
PERIODS = ("PriorityCalcPeriod", "PriorityMaxAge", "PriorityDecayHalfLife")


def scaled(recording: Recording, factor: float) -> Recording:
    """A recording whose times, from its beginning on, are `factor` times as long."""
    return _Longer(recording.began, factor).recording(recording)


class _Longer:
    def __init__(self, origin: float, factor: float) -> None:
        self.origin, self.factor = origin, factor

    def recording(self, one: Recording) -> Recording:
        truth = {
            job_id: Truth(self.at(t.start), self.at(t.end), t.nodes, t.state)
            for job_id, t in one.truth.items()
        }
        return replace(one, looks=[self.look(look) for look in one.looks], truth=truth)

    def at(self, moment: float) -> float:
        return self.origin + (moment - self.origin) * self.factor

    def maybe(self, moment: float | None) -> float | None:
        return None if moment is None else self.at(moment)

    def long(self, seconds: float | None) -> float | None:
        return None if seconds is None else seconds * self.factor

    def look(self, look: Look) -> Look:
        jobs = [self.job(job) for job in look.jobs]
        return replace(look, at=self.at(look.at), site=self.site(look.site), jobs=jobs)

    def job(self, job: SlurmJob) -> SlurmJob:
        return replace(
            job,
            submit=self.at(job.submit),
            eligible=self.maybe(job.eligible),
            start=self.maybe(job.start),
            end=self.maybe(job.end),
            accrue=self.maybe(job.accrue),
            time_limit_s=self.long(job.time_limit_s),
        )

    def site(self, site: Site) -> Site:
        parameters = dict(site.parameters)
        for name, default in PARAMETERS.items():
            parameters[name] = f"{site.parameter(name, default) * self.factor:g}"
        said = ",".join(f"{name}={value}" if value else name for name, value in parameters.items())
        config = {**site.config, "SchedulerParameters": said}
        for name in PERIODS:
            seconds = duration_s(config.get(name, ""))
            if seconds is not None:
                config[name] = f"{seconds * self.factor:.0f} sec"
        if site.booted is not None:
            config["BOOT_TIME"] = f"{self.at(site.booted):.0f}"
        assocs = {
            key: replace(one, usage=one.usage * self.factor) for key, one in site.assocs.items()
        }
        return replace(
            site,
            config=config,
            assocs=assocs,
            partitions={name: self.partition(one) for name, one in site.partitions.items()},
            reservations=tuple(self.reservation(one) for one in site.reservations),
            backfilled=self.maybe(site.backfilled),
        )

    def partition(self, one: Partition) -> Partition:
        most, usual = self.long(one.max_time_s), self.long(one.default_time_s)
        return replace(one, max_time_s=most, default_time_s=usual)

    def reservation(self, one: Reservation) -> Reservation:
        return replace(one, start=self.at(one.start), end=self.at(one.end))
