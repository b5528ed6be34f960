"""The decision core: it is given events and a time, and returns decisions."""
