"""Reads and shows the stories (what happened, and why) of the jobs of a recorded run."""

from pipeline.explain.run import RunError, RunFolder, UnknownJob, read_story

__all__ = ["RunError", "RunFolder", "UnknownJob", "read_story"]
