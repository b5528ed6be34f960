"""Alembic's migrations, which bring an older database to the present schema."""
