"""The Slurm backend: the questions and orders to the site's own Slurm (docs/slurm.md)."""
