"""Web pages for people who wait for jobs, and for people who run the cluster (docs/service.md)."""
