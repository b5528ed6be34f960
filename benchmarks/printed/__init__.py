"""How well a reader of output says how long a job runs: logs of our own writing, played at speed."""
