"""Migrations of the database, oldest first."""
