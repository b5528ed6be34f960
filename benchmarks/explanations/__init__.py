"""The audit of explanations: what is said of waiting jobs, carried out by a judge of its own."""
