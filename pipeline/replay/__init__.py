"""Replays a site's own `sacct` dump (record of past jobs) under other policies, to answer what they
would have saved."""
