"""The simulator: event loop on a simulated clock, progress of running jobs, and the records and
figures of a run.
"""
