"""Questions that the API writes to the database for the process that follows a Slurm."""

from __future__ import annotations

LEASE = "decider"  # of who answers: the follower holds it in place of a decider
ETA, TRIED, NODES, SHARES = "slurm_eta", "slurm_what_if", "slurm_nodes", "slurm_shares"
LOOK = "slurm_look"  # read the queue again
PATIENCE_S = 30.0  # whoever asked longer ago has left
