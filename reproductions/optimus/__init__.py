"""Optimus (EuroSys'18), with what it needs to schedule all-reduce training."""
