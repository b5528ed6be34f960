"""The simulated clock: event loop, progress of running jobs, records and figures of a run."""
