"""The database of the service: its tables and migrations, appending events to the log, and
queries.
"""
