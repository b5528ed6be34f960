"""Forecasts: copies of the core, run forward into simulated futures with random durations and
arrivals.
"""
