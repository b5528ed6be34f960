"""Track `published`: the settings of Lucid's artifact, for fidelity to its figures."""
