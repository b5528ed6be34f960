"""Where decisions take effect: a simulated clock, this host, Slurm."""
