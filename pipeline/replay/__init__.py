"""What would it have saved us? A site's own `sacct` dump, replayed under other policies."""
