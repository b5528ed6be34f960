"""All that knows Slurm. Others come in by `reason` (what it says of a job) and `entry` alone."""
