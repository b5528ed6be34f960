"""The story of one job, computed from the decisions recorded about it and from nothing else."""

from pipeline.explain.run import JobFacts, RunError, RunFolder, UnknownJob
from pipeline.explain.story import Story, build_story, tell

__all__ = ["JobFacts", "RunError", "RunFolder", "Story", "UnknownJob", "build_story", "tell"]
