"""The database: tables, migrations, appending to the log."""
