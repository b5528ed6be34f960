"""The names that may occur in a reading. A reader in a process of its own may send only these.

Nothing here reads anything. `profiler.progress.apart` hands a place in these lists over, never a
text that somebody printed.
"""

from __future__ import annotations

from typing import NamedTuple

from features.progress import CONTRADICTED, EARLY, GROWN, REPEATS

VARIABLE = "PELLUCID_PROGRESS"  # names a file that a job keeps its progress in: `1200/5000`
UNITS = ("fold", "epoch", "step", "percent", "eta")
TABLE = "table"  # rows under a heading
DOUBTED = (EARLY, REPEATS, CONTRADICTED, GROWN)
SOURCES = (
    "its own words", "eta", "fold", "epoch", "step", "percent", "epoch and step", "boosting",
    "CLU", "CatBoost", "Cellpose", "Composer", "Coqui TTS", "DINOv2", "Darknet", "darkflow",
    "Detectron2", "ESPnet", "Hugging Face", "Ignite", "Keras", "Keras-RL", "Lightning", "MLPerf",
    "MMEngine", "MXNet", "Marian", "Megatron", "Optuna", "PaddleDetection", "PaddleOCR", "ParlAI",
    "PyTorch ImageNet", "PyTorch MNIST", "PyTorch language model", "PyTorch seq2seq", "RetinaFace",
    "RLlib", "Sample Factory", "Stable-Baselines3", "StyleGAN", "Swin", "Tacotron", "Ultralytics",
    "faceswap", "fairseq", "fastText", "fastai", "gensim", "growth", "key and value", "nanoGPT",
    "nerfstudio", "rich", "rl_games", "timm", "tqdm", TABLE,
)  # fmt: skip
COMPLAINTS = (
    "",
    "the GPU's memory was not enough (its own message is in the last lines)",
    "host memory was not enough (its own message is in the last lines)",
)


class Terms(NamedTuple):
    """When a change of progress is worth reporting.

    Attributes:
        earliest_s: time of the first report, seconds since the job began.
        least_s: least time between two reports, seconds; less in the first minutes.
        firm: largest relative standard error of a pace that is compared with another.
    """

    earliest_s: float = 10.0
    least_s: float = 30.0
    firm: float = 0.1


TERMS = Terms()
EVERY, MOST_S = 0.02, 60.0  # share of its time after which it is looked at again; at most
MOST_READ, OWN_WORDS = 262_144, 4096  # bytes a look: of the output its end, of a job's own file
