"""In front of a Slurm that schedules by itself: reads its queue, says what it would do."""
