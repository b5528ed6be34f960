"""The event log of the service, and what is made from it: state, tables, snapshots, audit."""
