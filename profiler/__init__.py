"""Runs a command briefly, watches the GPU from outside, and returns a profile."""
