"""The embedded trace: a generator with a stated process."""
