"""Optimus (EuroSys'18), and what it takes to run it on all-reduce training."""
