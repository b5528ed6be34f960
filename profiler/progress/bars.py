"""What a bar counts, by its label, its figures and its unit."""

from __future__ import annotations

import re

# bars and lines of what is no training: evaluation, and what goes before
_OTHER = re.compile(
    r"\b(?:val(?:id(?:at\w{1,10})?)?|eval(?:uat\w+)?|test(?:ing)?|predict\w*|infer\w*|sanity|"
    r"generat\w+|sampl(?:e|ing)|download\w*|load\w*|map|filter\w*|token\w+|resolv\w+|extract\w*|sav"
    r"\w+|fetch\w*|pre-?process\w*|cach\w+|scan\w*|read\w*|build\w*|shards?|files?|warm-?up|"
    r"calibrat\w+|checkpoints?|data(?:sets?)?|pack(?:ing|ed)|truncat\w+|group\w*|cast\w*|adding|"
    r"captur\w+|compil\w+|convert\w*|copy\w*|index\w*|collat\w+|mAP50|class +images)\b",
    re.IGNORECASE,
)
# units of what goes before a training, as tqdm prints them: "[00:12<00:15, 358.0 examples/s]"
_DATA = re.compile(
    r"(?:\d|\?) ?(?:examples?|files?|docs?|documents?|rows?|lines?|records?|shards?|chunks?|"
    r"articles?|sentences?|objects?|entries|items?|pages?|tables?|tokens?)/s[\],]"
    r"|s/ ?(?:examples?|files?|docs?)\b"
)
# bars of jobs that train nothing: what they do is all there is, where nothing else is counted
_WORKS = re.compile(
    r"^Processed prompts|^Running [\w-]{1,40}+ requests|^Sampling \d{1,4} chains?\b|\bacc\. prob="
)
WORK = "work: "  # before the label of such a bar
_BYTES = re.compile(r"\[[\d:?]{1,20}+(?:<[\d:?]{1,20}+)?, {1,4}[\d.?]{0,20}[kMG]?i?B/s")
_FIELDS = re.compile(r"\d[.;|]\s")
_TRAINS = re.compile(
    r"(?<![a-z])(?:epochs?|(?:pre|re)?-?train\w{0,40}|fit\w{0,40}|optimi[sz]\w{0,40}|fine-?tun\w{0,40}|steps?|iter\w{0,40}|"
    r"batch\w{0,40}|it|progress|updates?|rounds?|episodes?|ep|learn\w{0,40}|loss|lr|acc\w{0,40})(?![a-z])"
    r"|\d\.\d|^\d{1,9}/\d",
    re.IGNORECASE,
)
_METRICS = re.compile(
    r"(?<![a-z])(?:loss\w{0,40}|lr|acc\w{0,40}|reward\w{0,40}|ppl|nll|psnr|v_num|grad_norm|"
    r"train_\w{1,40}) ?[=:]",
    re.IGNORECASE,
)
OF_EPOCH = re.compile(r"\b[Ee]poch\W{0,8}(\d+)(?: *(?:/|of) *(?P<of>\d+))?")
AT_EPOCH = re.compile(r"[\[, ][Ee]poch[=:] {0,2}(\d{1,9})(?:/(?P<of>\d{1,9}))?(?![\d./])")
TORCHTUNE = re.compile(r"(?<!\d)(\d{1,9})\|\d{1,12}\|Loss")
COUNTS_EPOCHS = "epoch", "epochs", "training epochs", "total epochs"
COUNTS_STEPS = (
    "step",
    "steps",
    "global step",
    "global steps",
    "updates",
    "training progress",
    "train steps",
    "training steps",
    "optimization steps",
    "total steps",
)


def is_other(label: str, line: str, begin: int, end: int) -> bool:
    """Return whether a progress bar, from `begin` to `end` of a line, is about something else than
    training.
    """
    if works(label, line, end):
        return False
    if _OTHER.search(label) or _BYTES.search(line, begin):
        return True
    trains = OF_EPOCH.search(label) or _METRICS.search(line, end)
    return not trains and _DATA.search(line, end) is not None


def works(label: str, line: str, end: int) -> bool:
    """Return whether a bar is of what a job does that trains nothing: inference, an evaluation, a
    sampler's chain.
    """
    return bool(_WORKS.search(label.strip()) or _WORKS.search(line, end))


def says_other(line: str, begin: int) -> bool:
    """Return whether the text before a number says it is no training: "Test: Epoch 3/90", "val step
    3/90".
    """
    near = max(0, begin - 40)
    for field in _FIELDS.finditer(line, near, begin):
        near = field.end()  # what came before was another figure
    return _OTHER.search(line, near, begin) is not None


def is_named(label: str, line: str, end: int) -> bool:
    """Return whether a bar's label, or the figures after its end, say that it is about training. A
    bar without a label may be.
    """
    return not label or bool(_TRAINS.search(label) or _METRICS.search(line, end))
