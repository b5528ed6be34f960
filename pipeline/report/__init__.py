"""The report: one self-contained page about a trace, its models and the policies compared."""
