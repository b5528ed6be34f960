"""SMD (INFOCOM'21), reconstructed. Each module says which parts are the paper's and which are
ours.
"""
