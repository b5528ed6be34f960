"""Features of a job: what is known about it when it is submitted. Training and the live service
compute them with the same code."""
