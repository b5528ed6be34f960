"""One module per command of `pellucid`."""
