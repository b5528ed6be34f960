"""What training scripts print about how far they are: one row a format, with a line of each.

The first row whose pattern is found in a line reads it. Of general rows, which are no trainer's
own, each may read what those before have not: an epoch, a step, what is left. Groups of a pattern:

    epoch, epochs    the epoch's number, and how many there are (or the number of the last)
    step, steps      steps done, and how many there are in the epoch or in the run (`scope`)
    eta              what is left of the whole run; an ETA of the epoch only is not read
    fold, folds      runs within the run: folds, trials, stages
    percent          of the run

A pattern takes time linear in the line's length: two repeats never meet the same characters, and
what is searched for from many places is not looked for twice (`tests/test_growth.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from profiler.progress.bars import (
    COUNTS_EPOCHS,
    COUNTS_STEPS,
    OF_EPOCH,
    TORCHTUNE,
    is_named,
    is_other,
    says_other,
)

Scope = Literal["run", "epoch", ""]
_ETA = r"(?P<eta>(?:\d{1,4} days?, )?\d{1,4}:\d\d:\d\d|\d{1,4}:\d\d)(?![\d:])"
_SPAN = r"(?P<eta>(?:\d{1,4}d )?(?:\d{1,4}h )?(?:\d{1,4}m )?\d{1,4}(?:\.\d{1,3})?m?s)"


class Mark(NamedTuple):
    """One number read from a line.

    Attributes:
        unit: ``fold``, ``epoch``, ``step``, ``percent``, or ``eta`` (seconds left).
        of: how many there are, None where the line does not say.
        scope: steps of the whole ``run``, of an ``epoch``, or "" where that cannot be known.
        label: tells the bars of one format apart.
        ends: the number is printed when its unit is done, as far as the line shows; False: when
            it begins.
        exact: it counts what is done, and is printed at any time.
        sure: the line tells of a validation, so that the unit is done.
        named: False: a bar whose label does not say that it is of the training.
        based: numbering is known to begin with 1 (it has been made so).
        last: where numbering begins with 0, `of` is the number of the last one.
    """

    format: str
    unit: Literal["fold", "epoch", "step", "percent", "eta"]
    n: float
    of: float | None = None
    scope: Scope = ""
    label: str = ""
    ends: bool = False
    based: bool = True
    last: bool = False
    exact: bool = False
    sure: bool = False
    named: bool = True


@dataclass(frozen=True)
class Format:
    """A row of the table.

    Attributes:
        hint: a text without which no line is of this format, so that most are not searched.
        base: number of the first epoch, or fold; None where scripts differ.
        general: no format of one trainer.
        pipes: how many ``|`` the label of a bar may hold; None: the format has no label.
    """

    name: str
    hint: str
    pattern: re.Pattern[str]
    samples: tuple[str, ...]
    scope: Scope = "epoch"
    base: int | None = None
    last: bool = False
    general: bool = False
    pipes: int | None = None

    def label(self, line: str, match: re.Match[str]) -> str | None:
        """Return what stands before a bar; None where the format has no label."""
        if self.pipes is None:
            return None
        return "|".join(line[: match.start()].rsplit("|", self.pipes + 1)[-self.pipes - 1 :])


def _row(
    name: str,
    hint: str,
    pattern: str,
    *samples: str,
    scope: Scope = "epoch",
    base: int | None = None,
    last: bool = False,
    pipes: int | None = None,
) -> Format:
    return Format(name, hint, re.compile(pattern), samples, scope, base, last, pipes=pipes)


def _general(name: str, hint: str, pattern: str, *samples: str, scope: Scope = "epoch") -> Format:
    return Format(name, hint, re.compile(pattern), samples, scope, general=True)


_BOTH = r"(?P<step>\d+) ?/ ?(?P<steps>\d+)"
FORMATS = (
    _row("Ultralytics", "%",
         r"^\s*(?P<epoch>\d+)/(?P<epochs>\d+) +[\d.]+[GMK]B? .*?\d%.{1,60}? " + _BOTH,
         "      3/90      2.3G     0.123     0.456     0.789         12        640:  45%|####5   "
         "  | 225/500 [00:12<00:15, 17.97it/s]",
         "      1/90      2.3G     1.123     0.456     0.789         12        640: 45% ━━━━╸─── "
         "225/500 17.9it/s 12.3s<15.2s", last=True),
    _row("tqdm", "%|",
         r"\b\d+%\|[^|]*+\|\s*+(?P<step>[\d.]++[kMG]?)/(?P<steps>[\d.]++[kMG]?) \[",
         " 12%|█▏        | 360/3000 [00:10<01:18, 33.4it/s]",
         "Epoch 3/90:  45%|####5     | 225/500 [00:12<00:15, 17.97it/s, loss=0.3]",
         "Epoch 3:  45%|████▌     | 225/500 [00:12<00:15, 17.97it/s, v_num=0]", scope="", pipes=2),
    _row("tqdm", "it [", r"(?<!\d)(?P<step>\d+)it \[\d",
         "1200it [00:12, 98.0it/s]", scope="", pipes=0),
    _row("Lightning", "•", r"Epoch (?P<epoch>\d+)/(?P<epochs>\d+) [━╸╺ ]*+" + _BOTH + r" +\d+:\d\d",
         "Epoch 3/89  ━━━━━━━━━━━━━━━━ 225/500 0:00:12 • 0:00:15 17.97it/s v_num: 0", base=0,
         last=True),
    _row("Keras", "/", r"^\s*" + _BOTH + r" (?:━|\[[=>.]{8,}\]|- \d+(?:m?s|:\d\d))",
         "120/500 ━━━━━━━━━━━━━━━━━━━━ 12s 28ms/step - accuracy: 0.5012 - loss: 0.3400",
         "120/500 [======>.......................] - ETA: 12s - loss: 0.3400 - accuracy: 0.5012",
         "500/500 - 14s - 28ms/step - accuracy: 0.5012 - loss: 0.3400"),
    _row("Hugging Face", "epoch", r"^(?>.*?['\"]loss['\"]: ).*['\"]epoch['\"]: ['\"]?"
         r"(?P<epoch>\d+\.\d+)",
         "{'loss': 0.693, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.12}",
         "{'loss': '0.693', 'grad_norm': '1.2', 'learning_rate': '4.9e-05', 'epoch': '0.12'}"),
    _row("fairseq", "epoch ", r"\bepoch (?P<epoch>\d{3,}): +" + _BOTH,
         "2024-03-01 12:00:00 | INFO | train_inner | epoch 003:    120 / 500 loss=5.5, ppl=45.2, "
         "wps=9140, ups=3.5, wpb=2611, bsz=91, num_updates=1120, lr=0.0005, wall=320", base=1),
    _row("MMEngine", "[", r"^(?>.*?Epoch(?:\(train\))?\s+\[(?P<epoch>\d+)\]\[ *" + _BOTH
         + r"\]).*?eta: " + _ETA,
         "03/01 12:00:00 - mmengine - INFO - Epoch(train)  [3][120/500]  lr: 1.0e-02  eta: 3:20:10"
         "  time: 0.3500  data_time: 0.0100  memory: 3400  loss: 0.5000",
         "2024-03-01 12:00:00,123 - mmdet - INFO - Epoch [3][120/500]\tlr: 1.0e-02, eta: 3:20:10, "
         "time: 0.350, data_time: 0.010, memory: 3400, loss: 0.5000", base=1),
    _row("MMEngine", "Iter", r"(?:Iter\(train\)|INFO - Iter)\s+\[ *" + _BOTH + r"\]",
         "03/01 12:00:00 - mmengine - INFO - Iter(train) [  100/50000]  lr: 1.0e-02  eta: 3:20:10"
         "  time: 0.3500  data_time: 0.0100  memory: 3400  loss: 0.5000", scope="run"),
    _row("Detectron2", "eta:", r"eta: " + _ETA + r" +iter: (?P<step>\d+) ",
         "[03/01 12:00:00 d2.utils.events]:  eta: 0:12:33  iter: 119  total_loss: 1.912  "
         "loss_cls: 0.91  time: 0.3500  last_time: 0.3400  lr: 0.02", scope="run"),
    _row("Megatron", "iteration", r"iteration +(?P<step>\d+)/ *(?P<steps>\d+) \|",
         " [2024-03-01 12:00:00] iteration      100/   50000 | consumed samples:        25600 | "
         "elapsed time per iteration (ms): 350.1 | global batch size:   256 | lm loss: 9.1E+00 |",
         scope="run"),
    _row("timm", "Train: ", r"Train: (?P<epoch>\d+)(?:/(?P<epochs>\d+))? \[ *(?P<step>\d+)/"
         r"(?P<steps>\d+) \(",
         "Train: 3 [ 120/500 ( 24%)]  Loss: 5.51 (5.62)  Time: 0.350s,  91.43/s  (0.360s,  88.89/s)"
         "  LR: 1.000e-03  Data: 0.010 (0.020)", base=0),
    _row("PyTorch MNIST", "Train Epoch: ", r"Train Epoch: (?P<epoch>\d+) \[ *" + _BOTH,
         "Train Epoch: 3 [1280/60000 (2%)]\tLoss: 0.301456", base=1),
    _row("PaddleDetection", "learning_rate: ", r"Epoch: \[(?P<epoch>\d+)\] \[ *" + _BOTH + r"\] "
         r"learning_rate: .{1,400}? eta: " + _ETA,
         "[03/01 12:00:00] ppdet.engine INFO: Epoch: [3] [120/500] learning_rate: 0.01 loss: 5.51 "
         "eta: 3:20:10 batch_cost: 0.3500 data_cost: 0.0010 ips: 91.4 images/s", base=0),
    _row("PyTorch ImageNet", "Epoch: [", r"Epoch: \[(?P<epoch>\d+)\]\s*\[ *" + _BOTH,
         "Epoch: [3][ 120/5005]\tTime  0.350 ( 0.360)\tData  0.010 ( 0.020)\tLoss 5.51e+00",
         "Epoch: [3]  [ 120/5005]  eta: 0:30:12  lr: 0.1  img/s: 91.4  loss: 5.51 (5.62)", base=0),
    _row("Composer", "[epoch=", r"\[epoch=(?P<epoch>\d+)/(?P<epochs>\d+)\]\[batch=" + _BOTH,
         "[epoch=3/90][batch=225/500]:"),
    _row("CLU", "ETA", r"\d% \((?P<step>\d+)/(?P<steps>\d+)\), ETA",
         "Setting work unit notes: 3.4 steps/s, 24.0% (1200/5000), ETA: 18m", scope="run"),
    _row("Stable-Baselines3", "total_timesteps", r"total_timesteps +\| +(?P<step>\d+) ",
         "|    total_timesteps      | 20480        |", scope="run"),
    _row("nanoGPT", "iter ", r"^iter (?P<step>\d+): loss \S+, time ",
         "iter 100: loss 2.5012, time 350.12ms, mfu 12.00%", scope="run"),
    _row("fastai", ":", r"^(?P<epoch>\d+) +(?:\d+\.\d+ +)+(?P<done>\d+:\d\d) *$",
         "3         0.345012    0.456012    0.789012    00:14", base=0),
    _row("boosting", "[", r"^\[(?P<step>\d+)\]\s+\S*(?:train|valid|eval|test)\S*[:' ]",
         "[120]\ttrain-rmse:0.51234\teval-rmse:0.61234", scope="run"),
    _row("Swin", "Train: [", r"Train: \[(?P<epoch>\d+)/(?P<epochs>\d+)\]\[ *" + _BOTH + r"\]",
         "[2026-03-01 12:00:00 swin] (main.py 226): INFO Train: [3/90][120/500]\teta 0:03:10 lr "
         "0.0007\ttime 0.5012 (0.5100)\tloss 5.5100 (5.6200)\tmem 3400MB", base=0),
    _row("PaddleOCR", "global_step", r"epoch: \[(?P<epoch>\d+)/(?P<epochs>\d+)\], global_step: "
         r"(?P<step>\d+), .{1,300}? eta: " + _ETA,
         "[2026/03/01 12:00:00] ppocr INFO: epoch: [3/90], global_step: 1120, lr: 0.000500, loss: "
         "5.510000, avg_batch_cost: 0.35000 s, ips: 91.4 samples/s, eta: 3:20:10", base=1,
         scope="run"),
    _row("CatBoost", "remaining: ", r"^(?P<step>\d+):\s+learn: .{1,300}?\sremaining: " + _SPAN,
         "120:\tlearn: 0.3012\ttest: 0.3212\tbest: 0.3212 (119)\ttotal: 2m 1s\tremaining: 48m 20s",
         scope="run"),
    _row("rl_games", " frames: ", r"inference: \d{1,12} fps total: "
         r"\d{1,12} epoch: (?P<epoch>\d+)/(?P<epochs>\d+) frames: ",
         "fps step: 91430 fps step and policy inference: 81230 fps total: 71230 epoch: 120/500 "
         "frames: 7864320", base=1),
    _row("DINOv2", "Training  [", r"Training  \[ *" + _BOTH + r"\]  eta: " + _ETA,
         "I20260301 12:00:00 123 dinov2 helpers.py:102] Training  [ 120/5000]  eta: 3:20:10  lr: "
         "0.0001  total_loss: 9.9100 (9.9500)", scope="run"),
    _row("ESPnet", "epoch started", r"\b(?P<epoch>\d+)/(?P<epochs>\d+)epoch started",
         "[host] 2026-03-01 12:00:00,123 (trainer:298) INFO: 3/90epoch started. Estimated time to "
         "finish: 3 hours, 20 minutes and 10.2 seconds", base=1),
    _row("ESPnet", "epoch:train", r"\b(?P<epoch>\d+)epoch:train:\d+-(?P<step>\d+)batch",
         "(trainer:762) INFO: 3epoch:train:101-200batch: iter_time=1.2e-04, loss=55.1", base=1),
    _row("Optuna", "rial ", r"\bTrial (?P<fold>\d+) (?:finished|pruned|failed|complete)",
         "[I 2026-03-01 12:00:00,123] Trial 3 finished with value: 0.3012 and parameters: "
         "{'lr': 0.01}. Best is trial 1 with value: 0.2912.", base=0),
    _row("Optuna", "new study", r"A (?P<study>new study) created",
         "[I 2026-03-01 12:00:00,123] A new study created in memory with name: no-name-1", base=0),
    _general("epoch and step", "poch",
         r"[Ee]poch\W{0,4}(?P<epoch>\d+) *(?:/|of) *(?P<epochs>\d+)\W{1,6}"
         r"(?:(?:[Ss]tep|[Ii]ter|[Bb]atch)[A-Za-z_]{0,12}\W{0,4})?(?P<step>\d+) *(?:/|of) *"
         r"(?P<steps>\d+)\b",
         "Epoch [3/90], Step [120/500], Loss: 0.3012",
         "epoch: 3/90, iter: 120/500, mem: 3400Mb, iter_time: 0.350s, lr: 1.0e-02, ETA: 3:20:10"),
    _general("fold", "", r"\b(?:[Ff]old|FOLD|[Tt]rial)\W{0,4}(?P<fold>\d{1,6})"
         r"(?: *(?:/|of) *(?P<folds>\d{1,6}))?(?![\d.])", "Fold 2/5", "===== Fold 0 =====",
         scope=""),
    _general("fold", "", r"\b(?:[Ss]eed|[Ss]tage|[Pp]hase|[Rr]epeat|[Rr]epetition)\W{0,4}"
         r"(?P<fold>\d{1,6}) *(?:/|of) *(?P<folds>\d{1,6})\b", "Stage 2/5", scope=""),
    _general("fold", "eed", r"^(?:\W{2,40}|.{0,40}[Rr]unning (?:with )?)[Ss]eed\W{1,3}"
         r"(?P<fold>\d{1,6})\W{0,40}$",
         "----- seed 0 -----", "Running seed 1", scope=""),
    _general("epoch", "poch", r"\b[Ee]poch\W{0,4}(?P<epoch>\d+) *(?:/|of) *(?P<epochs>\d+)\b",
         "Epoch [3/90]", "Epoch 3/90", "epoch 003 of 090: loss 0.3012"),
    _general("step", "", r"\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Uu]pdate)s?\W{0,4}(?P<step>\d+) *"
         r"(?:/|of) *(?P<steps>\d+)\b", "step 1200/5000", "iteration 100/50000", scope=""),
    _general("step", "num_updates", r"num_updates\W{1,4}(?P<step>\d+)\b", "num_updates=1120",
         scope="run"),
    _general("step", "global", r"\b[Gg]lobal[_ ][Ss]teps?(?: ?[:=] ?| )(?P<step>\d+)(?![\d.])",
         "epoch=0/micro_step=100/global_step=100, RunningAvgSamplesPerSec=91.4", scope="run"),
    _general("step", "", r"\b(?:[Ss]tep|[Ii]ter(?:ation)?)s?(?: ?[:=] ?| )(?P<step>\d+)(?![\d.])",
         "steps: 100 loss: 2.3012 iter time (s): 0.350 samples/sec: 91.4",
         "Epoch 1 | iter 120 step 15 | loss train: 0.912, val: n/a | iter time: 350.12 ms",
         scope=""),
    _general("epoch", "poch", r"\b[Ee]poch(?: ?[:=#] {0,4}\[?| \[?)(?P<epoch>\d+)(?![\d.])",
         "Epoch 3: loss 0.3012, accuracy 0.5012"),
    _general("eta", "", r"\b(?:eta|ETA)\W{1,3}" + _ETA, "eta: 3:20:10", scope=""),
)  # fmt: skip

_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|d|h|m|s)")
_LONG = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FIGURES = re.compile(r"(?<!:\d)\d\.\d|[=:] ?\.?\d++e[+-]?\d")  # no time: "12:00:00.123"
_VALIDATED = re.compile(r"(?<![a-z])[Vv]al(?:id(?:ation)?)?(?![a-z])|(?<![a-z])[Tt]est_?[ a]")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x08"
)
# of whom a line is, as launchers put it before: Ray, torchrun, mpirun, srun --label
_PREFIX = re.compile(
    r"^(?:\(\w{1,40} pid=\d{1,9}[^)]{0,80}\) ?|\[(?:default|rank|RANK )\d{1,5}\]:? ?"
    r"|\[\d{1,5}(?:,\d{1,5})?\](?:<std(?:out|err)>)?: ?|\d{1,4}: (?=\S))"
)
_PROMISING = re.compile(
    r"\d ?[/%]|\d of \d|poch|[Ss]tep|[Ii]ter|updates|eta:|ETA|eta \d|remaining|[Ff]old|FOLD|[Ss]eed"
    r"|[Tt]rial|new study|\"progress\"|^\[?\d"
)
LINE = 1000  # characters of a line that are looked at


def read(line: str) -> list[Mark]:
    """What a line says; nothing for most. A bar of something else than training says nothing."""
    if len(line) > LINE:
        line = line[:LINE]
    if _PROMISING.search(line) is None:
        return []
    if "\x1b" in line or "\x08" in line:
        line = _ESCAPES.sub("", line)
    if '"progress"' in line:
        own = explicit(line)
        if own is not None:
            return [own]
    return _by_rows(_PREFIX.sub("", line))


def _by_rows(line: str) -> list[Mark]:
    found: dict[str, Mark] = {}
    for row in FORMATS:
        match = row.pattern.search(line) if row.hint in line else None
        if match is None:
            continue
        if _is_other(row, line, match):
            return []
        marks = _marks(row, line, match)
        if not row.general:
            return list(marks)
        for mark in marks:
            found.setdefault(mark.unit, mark)
    epoch = found.get("epoch")
    if epoch is not None and "step" in found:  # with a step, it is under way
        found["epoch"] = epoch._replace(ends=False)
    return list(found.values())


def explicit(text: str) -> Mark | None:
    """What a job says outright: one line of JSON, `{"progress": {"done": 1200, "of": 5000}}` or
    `{"progress": 0.24}`; None where it is neither."""
    try:
        value = json.loads(text[text.index("{") :])["progress"]
        if isinstance(value, dict):
            done, of = float(value["done"]), float(value["of"])
        else:
            done, of = 100.0 * float(value), 100.0
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    if not 0 <= done <= of or not 0 < of <= 1e15:
        return None
    whole = not isinstance(value, dict)
    return Mark("its own words", "percent" if whole else "step", done, of, "run", "explicit")


def _is_other(row: Format, line: str, match: re.Match[str]) -> bool:
    groups, label = match.groupdict(), row.label(line, match)
    if label is not None:
        return is_other(label, line, match.start(), match.end())
    if row.name == "Keras" or groups.get("fold") is not None:
        return False
    return says_other(line, match.start())


def _marks(row: Format, line: str, match: re.Match[str]) -> Iterator[Mark]:
    groups = match.groupdict()
    step, steps = _float(groups.get("step")), _float(groups.get("steps"))
    label = row.label(line, match)
    if label is not None:
        yield from _of_bar(row, line, match, label)
        return
    if groups.get("study") or groups.get("fold"):
        yield _fold(row, groups)
    if groups.get("epoch"):
        figures = step is None and _FIGURES.search(line) is not None
        yield _epoch(row, groups, figures, figures and _VALIDATED.search(line) is not None)
    if step is not None:
        yield Mark(row.name, "step", step, steps, row.scope)
    if groups.get("percent"):
        yield Mark(row.name, "percent", float(groups["percent"]), 100.0, row.scope)
    if groups.get("eta"):
        # a trainer's own is of the run: what is left of an epoch is not in its row
        yield Mark(row.name, "eta", _seconds(groups["eta"]), scope="" if row.general else "run")


def _of_bar(row: Format, line: str, match: re.Match[str], before: str) -> Iterator[Mark]:
    groups = match.groupdict()
    step, steps, scope = _float(groups.get("step")), _float(groups.get("steps")), row.scope
    text = before.strip(" :-.\t")
    label = re.sub(r"[\d.]+", "0", text)[-40:]
    if step is None:
        return
    if text.lower() in COUNTS_EPOCHS:
        yield Mark(row.name, "epoch", step, steps, label=label, ends=True, exact=True)
        return
    found = OF_EPOCH.search(text) or TORCHTUNE.search(text)
    if found is not None:
        of = found.groupdict().get("of")
        based = found.re is TORCHTUNE
        yield Mark(row.name, "epoch", float(found[1]), _float(of), based=based)
        scope = "epoch"
    elif text.lower() in COUNTS_STEPS:
        scope = "run"
    named = is_named(text, line, match.end())
    yield Mark(row.name, "step", step, steps, scope, label, named=named)


def _fold(row: Format, groups: dict[str, str | None]) -> Mark:
    """The number of a run within the run; of a format that has a base, how many are over."""
    n, over = _float(groups.get("fold")), row.base is not None
    done = 0.0 if n is None else n + 1.0
    return Mark(
        format=row.name,
        unit="fold",
        n=done if over else done - 1.0,
        of=_float(groups.get("folds")),
        ends=over,
        based=over,
        exact=over,
    )


def _epoch(row: Format, groups: dict[str, str | None], figures: bool, sure: bool) -> Mark:
    """An epoch's number, from 1 on where it is known where it begins. A line with figures (a loss)
    comes when the epoch is done, or within it; `sure`: when it is done."""
    n, of = _float(groups["epoch"]) or 0.0, _float(groups.get("epochs"))
    if row.name == "Hugging Face":
        return Mark(row.name, "epoch", n, of, ends=True, exact=True)  # 0.12: done so far
    if row.base == 0:
        n, of = n + 1, of + 1 if of is not None and row.last else of
    timed = groups.get("done") is not None
    return Mark(
        format=row.name,
        unit="epoch",
        n=n,
        of=of,
        ends=figures or timed,
        based=row.base is not None,
        last=row.last,
        sure=sure or timed,
    )


def _float(text: str | None) -> float | None:
    if not text:
        return None
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1.0)
    try:
        return float(text.rstrip("kMG")) * scale
    except ValueError:  # "1.2.3"
        return None


def _seconds(text: str) -> float:
    if text.endswith("s"):
        return sum(_LONG[unit] * float(n) for n, unit in _PARTS.findall(text))
    days, comma, clock = text.rpartition(", ")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + (86400.0 * float(days.split()[0]) if comma else 0.0)
