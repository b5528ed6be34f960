"""Measures on many worlds whether the policy's defaults suit clusters that nobody tuned them on."""
