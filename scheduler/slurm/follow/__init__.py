"""Follows a Slurm that schedules by itself: reads its queue, and shows what Pellucid would
decide."""
