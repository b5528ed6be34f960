"""Parts of the policy `pellucid`: what to expect of a job, reservations, packing gain."""
