"""Follows a Slurm that schedules by itself: reads its queue, and says what Pellucid would do."""
