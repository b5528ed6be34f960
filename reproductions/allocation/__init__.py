"""Policies that hand out whole allocations: which GPUs, how many, of which type, with what batch
size.
"""
