"""Systems that hand out whole allocations: Gavel, Optimus, Pollux, SMD, DRF, Tetris, Tiresias."""
