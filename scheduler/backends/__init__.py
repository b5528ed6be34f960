"""Backends, which carry out decisions: on a simulated cluster, on this host, or in Slurm."""
