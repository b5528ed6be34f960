"""Measures how well the reader of job output predicts durations, on logs of our own writing."""
