"""Pages for people who wait and people who run the cluster (docs/service.md)."""
