"""The policy `pellucid` and its parts, such as order, reservations, backfill, and sharing of
GPUs."""
