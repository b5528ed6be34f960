"""Pollux (OSDI'21): co-adaptive scheduling by goodput."""

from scheduler.policies.pollux.policy import Pollux

__all__ = ["Pollux"]
