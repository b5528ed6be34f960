"""The analyst: the process that forecasts when a job will start, and says why it waits and what
would change that.

Nothing here decides. Forecasts and what-ifs come from copies of the decision core that are run
forward. Queues, fair shares and histories are read from the core with which it follows the log.
"""
