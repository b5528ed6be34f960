"""The backends that carry out decisions: a simulated clock, this host, Slurm."""
