"""The commands of `pellucid`, one module per command."""
