"""All that knows Slurm. The rest of the product comes in by `entry` and `reason` alone."""
