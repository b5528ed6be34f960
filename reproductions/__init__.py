"""Systems from the literature, for comparison. Most have policies that assign whole allocations
(which GPUs, how many): Gavel, Optimus, Pollux, SMD, DRF, Tetris, Tiresias. Those in `baselines`
start whole gangs. `colocation` measures jobs that share a GPU.
"""
