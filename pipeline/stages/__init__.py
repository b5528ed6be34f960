"""The stages of `dvc.yaml`. Each also runs alone: ``python -m pipeline.stages NAME``."""
