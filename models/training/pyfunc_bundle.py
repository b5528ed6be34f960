"""The MLflow model of a bundle: code that loads the bundle and predicts. It is logged as source
code, so nothing is pickled."""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np
import pandas as pd

from models.bundle import Bundle


class BundleModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A model for MLflow that predicts job durations, in seconds, from a data frame of features."""

    def load_context(self, context: Any) -> None:
        """Read the bundle that was logged with the model."""
        self._bundle = Bundle.load(context.artifacts["bundle"])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> np.ndarray:
        """Return the predicted duration of each row of `model_input`, seconds, (n,)."""
        model = self._bundle.duration
        seconds: np.ndarray = model.seconds(model.score_batch(model_input))
        return seconds


mlflow.models.set_model(BundleModel())
