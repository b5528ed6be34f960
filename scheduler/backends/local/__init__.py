"""The local backend: real processes on this host (`backend.LocalBackend`).

Nothing is imported here: the zygote runs `shim` without site-packages.
"""
