"""What is known about a job at the moment it is submitted; the same code offline and online."""
