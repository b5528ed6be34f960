"""`pellucid serve-demo`: a service with fake GPUs, and people who send it real processes."""
