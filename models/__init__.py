"""Interpretable models: training (`models.training`) and the exported bundle (`models.bundle`)."""
