"""What may happen: copies of the core, run forward into drawn futures."""
