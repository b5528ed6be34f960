"""How far a job is, read from what it prints."""
