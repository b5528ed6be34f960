"""The local backend: runs jobs as processes on this host (`backend.LocalBackend`).

Nothing is imported here, because the zygote (the small process that forks jobs) runs `shim` without
site-packages.
"""
