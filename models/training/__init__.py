"""Training of models. No other package loads interpret, scikit-learn, LightGBM or MLflow."""
