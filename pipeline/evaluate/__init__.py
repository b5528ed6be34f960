"""What `pellucid evaluate` prints: one module per kind of prediction.

Each has `run(data, *, seed) -> dict`, plain JSON with every figure and its baselines, and may have
`text(result) -> str`, the same for a person.
"""
