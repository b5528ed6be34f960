"""The decision core: cluster, work, policies, engine."""
