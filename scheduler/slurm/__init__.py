"""Everything that depends on Slurm. Other packages import only `reason` (why Slurm keeps a job
waiting) and `entry`."""
