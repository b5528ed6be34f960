"""Compares every reproduced system with its own published or recorded figures."""
