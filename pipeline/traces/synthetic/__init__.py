"""The built-in trace: a generator of synthetic jobs by a documented random process."""
