"""Measures workloads alone and in pairs on one GPU: relative speeds, utilisation, memory."""
