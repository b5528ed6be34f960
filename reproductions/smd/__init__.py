"""SMD (INFOCOM'21), reconstructed: see the modules for what is the paper's and what is ours."""
