"""Charts and drawings of models, for the pages of the service and the report."""
