"""Parts of `pellucid serve-demo`: a service with fake GPUs, and users who submit real processes to
it."""
