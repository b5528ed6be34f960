"""The process that decides, and the supervisor that keeps every process running."""
