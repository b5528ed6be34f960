"""Systems from the literature whose policies assign whole allocations (which GPUs, how many):
Gavel, Optimus, Pollux, SMD, DRF, Tetris, Tiresias.
"""
