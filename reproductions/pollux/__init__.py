"""Pollux (OSDI'21): co-adaptive scheduling by goodput."""

from reproductions.pollux.policy import Pollux

__all__ = ["Pollux"]
