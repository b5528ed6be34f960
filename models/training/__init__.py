"""Fitting: the only place that loads interpret, scikit-learn, LightGBM or MLflow."""
