"""The audit of explanations: a separate judge tries out what is said of waiting jobs."""
