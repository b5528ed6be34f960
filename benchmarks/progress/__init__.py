"""How well a job's own progress says how long it will run."""
