"""The profiler: runs a command for a short time, watches the GPU from outside, and returns a
profile."""
