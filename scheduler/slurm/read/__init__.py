"""Reads the site's own Slurm and gives orders to it (docs/slurm.md)."""
