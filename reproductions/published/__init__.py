"""The track `published`: the settings of Lucid's artifact, in order to reproduce its figures."""
