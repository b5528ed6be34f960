"""The framework for policies that assign whole allocations to jobs: which GPUs, how many, of which
type, with what batch size.
"""
