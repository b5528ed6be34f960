"""The Slurm backend: what the site's own Slurm is asked to do (docs/slurm.md)."""
