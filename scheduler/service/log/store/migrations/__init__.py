"""Alembic: how the database got its present shape."""
