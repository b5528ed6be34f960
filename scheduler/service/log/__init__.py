"""The event log, and what follows from it: state, tables, snapshots, audit."""
