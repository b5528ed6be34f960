"""Pollux (OSDI'21): co-adaptive scheduling by goodput."""

from scheduler.peers.pollux.policy import Pollux

__all__ = ["Pollux"]
