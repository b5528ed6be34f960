"""Every system of the sources against its own published or recorded figures."""
