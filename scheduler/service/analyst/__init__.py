"""The analyst: the process that forecasts when a job will start, and says why it waits and what
would change that.

Nothing here decides. Every answer comes from copies of the decision core that are run forward.
"""
