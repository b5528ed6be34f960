"""The scheduler: the decision core, its policies, the service, backends and the simulator."""
