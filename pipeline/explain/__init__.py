"""The stories of the jobs of a recorded run (`scheduler.explain.story`)."""

from pipeline.explain.run import RunError, RunFolder, UnknownJob, read_story

__all__ = ["RunError", "RunFolder", "UnknownJob", "read_story"]
