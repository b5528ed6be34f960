"""The audit of explanations: a separate judge checks, by trial, what answers state about waiting
jobs.
"""
