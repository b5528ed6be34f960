"""The report: one self-contained HTML page about a trace, its models, and the policies compared on
it."""
