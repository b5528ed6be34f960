"""The evaluations of `pellucid evaluate`: one module per kind of prediction.

Each has `run(data, *, seed) -> dict`, which returns the figures and those of baselines as plain
JSON, and may have `text(result) -> str`, which returns them as tables.
"""
