"""The amount of training that a job asks for in its command or settings files: epochs or steps.

>>> of_command(["python", "train.py", "--epochs", "90"])
Amount(epochs=90.0, steps=None, patience=None, runs=None)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

from features.amounts import Amount, Work
from features.shell import Simple, one_of

MOST = 1e12  # what is above stands for "no end" (HF Trainer: 2^63 - 1 epochs)
_COUNTED = {
    "epochs": "epochs? epoches epoch_(num|size) (max|num)_epoch_num train(ing)?_epochs n_?epochs? "
    "nb_epochs? (num|max|total|number_of|max_num)_epochs? (num|max|total)_train(ing)?_epochs? "
    "scheduled_epochs end_epochs? after_epochs (n|num)?_?passes",
    "steps": "steps it iters iterations n_?iters? (train(ing)?|max|num|total|max_train|num_train"
    "|num_training|total_train|total_training|total_optimization)_(steps?|iters?|iterations?)"
    " (ts_max_steps|nsteps|numb_steps|num_server_rounds) max_updates? lr_anneal_steps"
    " total_num_update (comm(unication)?_|global_)?rounds (comm(unication)?|global)_round"
    " num_designs n_batches"
    " num_boost_round n_estimators num_trees num_rounds? nrounds n_?rounds?"
    " max_num_(steps|iterations) (max_)?number_of_(steps|iterations) nb_steps"
    " (max|num|total|train)_batches"
    " after_batches stop_iters kimg num_updates n_?gen (max_)?generations",
    "frames": "total_timesteps total_env_steps num_env_steps max_env_steps total_frames "
    "num_timesteps train_for_env_steps",
    # these are no amount, but what else is stated counts something within them
    "episodes": "((n|nb|num|number_of|max|total|train|num_train)_)?episodes?",
    "patience": "patience (es|early_stop(ping)?)_(patience|rounds?) early_stopping_rounds?",
    "runs": "n_?trials? (num|max)_trials? n_?folds? (num|k)_?folds? kfolds? n_splits? num_splits? "
    "cv_folds? n_?seeds? num_seeds? n_?repeats? num_repeats? repeats n_runs? num_runs? runs",
}
_NAMES = {unit: re.compile(f"(?:{'|'.join(names.split())})$") for unit, names in _COUNTED.items()}
_RUN_ON = re.compile(r"^(n|nb|num|max|total|end|train)(?=(?:epoch|iter|step)[a-z]{0,6}(?:_|$))")
_ENDS = re.compile(
    r"n|nb|nr|num|no|number|of|max|maximum|maximal|total|train|training|count|end|final|target|limit"
)
_PARTS = (  # of names: unit, and what it is called
    ("epochs", re.compile(r"epochs?|epoches")),
    ("steps", re.compile(r"iters?|iterations?|steps?")),
)
_OF_ALL = {  # one of these must be said beside it
    "epochs": re.compile("n|nb|nr|num|no|number|max|maximum|maximal|total|count|end|final"),
    "steps": re.compile("max|maximum|maximal|total|end|final|number"),
}
_LISTED = re.compile(r"(?:seeds|folds)$")  # each of its values is a run
# groups of settings of which none is the training's own
_BESIDE = re.compile(
    r"(?:^|[-+./])(?:eval(?:uation|uator)?|val(?:id(?:ation)?)?|test|predict(?:ion)?|sampl(?:er|ing)"
    r"|warm_?up|scheduler|lr_scheduler|checkpoint|logging)(?:_?(?:cfg|config|args|loop))?[./]"
)
_MORE = (
    "n_epochs_decay",
    "niter_decay",
    "train_samples",
    "global_batch_size",
)  # say how much together with another
_ROUNDS = re.compile(r"(?<!boost_)rounds?$")
_EARLY = re.compile(r"(?:use_)?early_?stop(?:ping)?$")
_INTERPOLATED = re.compile(r"\$\{([\w.]{1,80})\}")  # OmegaConf
_LASTS = re.compile(r"(\d{1,12})(ep|ba|)$")  # Composer: max_duration=3ep
_SPANNED = re.compile(r"range\((?:(\d{1,6}),)?(\d{1,6})\)$")
_YACS = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)+$")  # SOLVER.MAX_ITER 90000
# passes over what was just collected, within one of the steps that are the amount (PPO)
_SWEPT = re.compile(r"[^,\s]+(?:,[^,\s]+)+$")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+$")
# what a program does by itself, where its command says nothing else
_NNUNET = re.compile(r"nnUNetTrainer_(\d{1,6})epochs?")
_BATCH = re.compile(
    "bs|b|(train_|mini_?|global_|micro_|per_device_(train_)?|per_gpu_(train_)?)?batch_?(size)?$"
)
# their effect is learned by the GPUs that the job asks for
_GPUS = re.compile("(n|num|number_of)?_?(gpus?|devices)(_per_node)?$|nproc_per_node|nproc$|nnodes$")
_VALUE = re.compile(r"(\d[\d_,]*+(?:\.\d+)?(?:e\d+)?|\.\d+)([kKM]?)$")
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
# as settings are printed before a run: Namespace(max_update=50000, ...), "Num Epochs = 3"
_PRINTED = re.compile(
    r"\b((?:num|max|total|train|training|scheduled|n|nb)[ _][a-z_ ]{0,24}|epoche?s)"
    r"['\"]?\s?[=:]\s?['\"]?(\d[\d_,]*+)(?!\d|[.:/]\d)",
    re.IGNORECASE,
)


_DONE = "epochs", "steps", "frames"
_OTHERS = re.compile(
    r"(?:eval|test|infer|predict|sampl|generat|export|plot|pre_?proc|prepare|download|convert|merge"
    r"|extract|embed|benchmark|serve|demo|visual|setup|tokeni|clean|make_|build_|summar|report)"
)
_ASIDE = re.compile(
    r"(?:do_?|only_?)?(?:eval(?:uate|uation)?|test|predict|infer(?:ence)?|val)(?:_?only)?$"
)
# a program that trains many times, as its name says
_SEARCHES = re.compile(
    r"(?:^|[/_])(?:grid_?search|random_?search|hyper_?opt|hyper_?param\w{0,10}(?:search|opt|tun)|hpo|sweep)\w{0,20}\.py$"
)
_TRAINS = re.compile(r"(?:^|[/_-])(?:pre_?)?(?:train|fine_?tune)\w{0,40}\.py$")
_MODES = "mode", "phase", "run_mode", "job_type", "stage"
_CHOOSES = re.compile(  # a program compares what it is to do
    r"\b(?:mode|phase|job_type|stage)['\")\]]{0,3} {0,2}(?:==|!=|in|not in) {0,2}[(\[{]?['\"]"
)
_DATA = re.compile(r"\.(?:csv|tsv|jsonl?|txt|h5|hdf5|np[yz]|pkl|parquet|lmdb|arrow)$")
_SCRIPT = re.compile(r"\.(?:py|sh|R|jl|ipynb|lua|m)(?:\s|$)|(?:^|\s)-m\s")


def of_command(command: Sequence[str]) -> Amount:
    """Return the amount of training that a command states, by options such as `--epochs 90` or
    `--max-steps=5000`. Commands inside a shell line and its loops are read, too. If an option is
    repeated, the last one counts."""
    return of_commands(one_of(command))


def of_commands(commands: Sequence[Simple]) -> Amount:
    """Return the amount of training that the commands of a script state. Commands that state the
    same amount add up as runs, except alternatives (`||`, `else`). If commands state different
    amounts, or one of them leaves its amount open (`--epochs $N`), only the number of runs is
    returned.
    """
    each = [(_of_words(one.words), one) for one in commands]
    states = [(found, one) for found, one in each if found.epochs or found.steps]
    stated = _counted([(found, one) for found, one in states if trains(one.words)] or states)
    stated = stated or _counted(
        [(found, one) for found, one in each if found.runs or _runs_script(one.words)]
    )
    amount = stated[0][0] if stated else Amount()
    if not (amount.epochs or amount.steps):
        amount = next((found for found, _ in stated if any(found)), amount)
        runs = _most_often([one for _, one in stated]) * (amount.runs or 1.0)
        return amount._replace(runs=runs if runs > 1 else None)
    if _trains_besides([one for _, one in stated], commands):
        return Amount()
    others = _unknown_runs([one for _, one in stated], commands)
    runs = times_of([one for _, one in stated] + others) * (amount.runs or 1.0)
    if others or any(other != amount for other, _ in stated):
        amount = Amount()
    return amount._replace(runs=runs if runs > 1 else None)


def _unknown_runs(stated: Sequence[Simple], commands: Sequence[Simple]) -> list[Simple]:
    """Return the further runs of the programs that state an amount, where the amount is a variable
    whose value is not known. One that runs only if an earlier one fails counts 0 times.
    """
    programs = {program_of(one.words) for one in stated}
    return [
        one._replace(times=0.0) if one.otherwise else one
        for one in commands
        if program_of(one.words) in programs
        and _leaves_open(one.words)
        and not only_tests(one.words)
    ]


def _leaves_open(words: Sequence[str]) -> bool:
    """Return whether a command's amount is a variable whose value is not known."""
    found = _of_words(words)
    return not (found.epochs or found.steps) and any(
        "$" in value and unit_of(bare(name)) in _DONE and not _BESIDE.search(name.lower())
        for name, value, _ in settings_of(words)
    )


def _trains_besides(stated: Sequence[Simple], commands: Sequence[Simple]) -> bool:
    """Return whether another program trains, too, as its name says: how much, nobody states."""
    programs = {program_of(one.words) for one in stated}
    others = [one for one in commands if program_of(one.words) not in programs]
    return any(
        _TRAINS.search(program_of(one.words)) and trains(one.words) and not only_tests(one.words)
        for one in others
        if not one.otherwise
    )


def times_of(commands: Sequence[Simple]) -> float:
    """Return how often commands run one after the other. Those of a group of jobs that run at the
    same time count as those of its longest job."""
    jobs, groups = dict[tuple[int, int], float](), dict[int, float]()
    for one in commands:
        jobs[one.beside, one.job] = jobs.get((one.beside, one.job), 0.0) + one.times
    for (group, _), times in jobs.items():
        groups[group] = max(groups.get(group, 0.0), times)
    return sum(groups.values())


def _most_often(commands: Sequence[Simple]) -> float:
    """Return how often the program runs that runs most often, without what only tests. Each call
    of a shell script counts for itself."""
    programs = dict[str, list[Simple]]()
    for i, one in enumerate(commands):
        if not only_tests(one.words):
            program = program_of(one.words)
            name = f"{i} {program}" if program.endswith("sh") else program
            programs.setdefault(name, []).append(one)
    return max(map(times_of, programs.values()), default=1.0)


def only_tests(words: Sequence[str], texts: Sequence[str] | None = None) -> bool:
    """Return whether an option of a command asks for a test only (`--eval-only`, `--mode test`).

    Args:
        texts: of the program and its modules; None: not known. `--phase val` of one that compares
            no phase with a text may be the part of the data on which it validates.
    """
    flags = {word.lower().replace("-", "_").lstrip("_") for word in _flags(words)}
    if any(map(_ASIDE.fullmatch, flags)) and not any("train" in flag for flag in flags):
        return True
    chosen = [value.lower() for name, value, _ in settings_of(words) if bare(name) in _MODES]
    if texts is not None and not any(map(_CHOOSES.search, texts)):
        chosen = [value for value in chosen if not value.startswith("val")]
    return any(map(_ASIDE.fullmatch, chosen))


def _flags(words: Sequence[str]) -> Iterator[str]:
    """Yield the options of a command, without those that are given a file of data."""
    for i, word in enumerate(words):
        value = words[i + 1] if i + 1 < len(words) else ""
        if word.startswith("-") and not _DATA.search(value):
            yield word


def trains(words: Sequence[str]) -> bool:
    """Return whether a command may train: the name of its program does not say that it does
    something else (`evaluate.py`)."""
    return not _OTHERS.match(program_of(words).rpartition("/")[2].rpartition(".py")[0].lower())


def _counted(stated: Sequence[tuple[Amount, Simple]]) -> list[tuple[Amount, Simple]]:
    """Return (stated amount, command) for each command. One that runs only if an earlier one fails
    (`||`, `else`) counts 0 times, unless it is the first."""
    return [
        (found, one._replace(times=0.0) if i and one.otherwise else one)
        for i, (found, one) in enumerate(stated)
    ]


def _of_words(command: Sequence[str]) -> Amount:
    """Return the amount of training that a command's own arguments state. Files that the command
    names are not read."""
    found = _stated(command)
    runs = _swept(command) * _of_agent(command)
    for i, word in enumerate(command):
        if word.startswith("-") and _LISTED.search(bare(word.partition("=")[0])):
            runs *= _listed(word, command[i + 1 :])
    steps = found.pop("frames", None) or _of_zoo(command)
    if steps is not None:  # epochs are passes over what a step collected
        found.pop("epochs", None)
        found["steps"] = steps
    if "epochs" not in found and (known := _of_nnunet(command)) is not None:
        found["epochs"] = known
    if "steps" not in found and (known := _of_translation(command)) is not None:
        found["epochs"] = known
    runs *= found.pop("runs", inf if _SEARCHES.search(program_of(command)) else 1.0)
    return Amount(**found, runs=runs if runs > 1 else None)


def _stated(command: Sequence[str]) -> dict[str, float]:
    """Return what the settings among a command's arguments state, {unit: number}."""
    found: dict[str, float] = {}
    names, more = dict[str, str](), dict[str, float]()
    for name, value, _ in settings_of(command):
        plain = bare(name)
        unit = None if _BESIDE.search(name.lower()) else unit_of(plain)
        number = number_of(value) if unit or plain in _MORE else None
        if unit and number is not None:
            if unit in names and _known(names[unit]) and not _known(plain):
                continue  # a count that is known, not one that its name's parts suggest
            found[unit], names[unit] = number, plain
        elif number is not None:
            more[plain] = number
        elif plain == "max_duration" and (lasts := _LASTS.match(value)):
            found["epochs" if lasts[2] == "ep" else "steps"] = float(lasts[1])
        elif _EARLY.match(plain) and value.lower() not in ("false", "0", "no", "none"):
            waits = number_of(value) or 0.0
            found.setdefault("patience", waits if waits > 1 else 0.0)
    return _agreed(found, names, more)


def _of_translation(command: Sequence[str]) -> float | None:
    """Return the number of epochs that a command of pix2pix and CycleGAN trains for: at a constant
    rate, then at one that falls, each by default 100. Return None for other commands."""
    given = {bare(name): value for name, value, _ in settings_of(command)}
    if "dataroot" not in given or "niter" in given or not program_of(command).endswith("train.py"):
        return None
    if given.get("model") not in ("pix2pix", "cycle_gan"):
        return None
    parts = [number_of(given.get(name, "100")) for name in ("n_epochs", "n_epochs_decay")]
    return sum(part or 0.0 for part in parts)


def _agreed(
    found: dict[str, float], names: Mapping[str, str], more: Mapping[str, float]
) -> dict[str, float]:
    """Return what settings state together, {unit: number}.

    Args:
        found: what each states for itself.
        names: of the settings, by their units.
        more: numbers that say how much together with another.
    """
    if names.get("epochs") == "num_train_epochs" and "steps" in found:
        del found["epochs"]  # Hugging Face: a number of steps overrides it
    if _ROUNDS.search(names.get("steps", "")) or "episodes" in found:
        found.pop("epochs", None)  # within each round of federated learning, of each episode
    found.pop("episodes", None)
    if names.get("steps") == "niter" and "niter_decay" in more:  # pix2pix: they are epochs
        found["epochs"] = found.pop("steps") + more["niter_decay"]
    if "epochs" in found:
        found["epochs"] += more.get("n_epochs_decay", 0.0)
    if "steps" not in found and "train_samples" in more and "global_batch_size" in more:
        found["steps"] = more["train_samples"] / more["global_batch_size"]
    return found


def _swept(command: Sequence[str]) -> float:
    """Return the number of runs that a parameter sweep of Hydra (`--multirun`) makes; 1 if the
    command is no sweep."""
    script = next((i for i, word in enumerate(command) if word.endswith(".py")), len(command))
    if "--multirun" not in command and "-m" not in command[script:]:
        return 1.0
    runs = 1.0
    for word in command:
        name, equals, value = word.partition("=")
        if not equals or name.startswith("-"):
            continue
        if spanned := _SPANNED.match(value):
            runs *= max(1, int(spanned[2]) - int(spanned[1] or 0))
        elif value.startswith("glob("):
            runs = inf
        elif _SWEPT.fullmatch(value):
            runs *= 1 + value.count(",")
    return runs


def _of_agent(command: Sequence[str]) -> float:
    """Return the number of runs that a `wandb agent` makes: its `--count`, or infinity; 1 for
    any other command.
    """
    if list(command[:2]) != ["wandb", "agent"]:
        return 1.0
    options = dict(pairwise(command))
    return number_of(options.get("--count", "")) or inf


def _listed(word: str, rest: Sequence[str]) -> float:
    value = word.partition("=")[2]
    if value:
        return 1.0 + value.count(",")
    listed = next((i for i, one in enumerate(rest) if one.startswith("-")), len(rest))
    return 1.0 + rest[0].count(",") if listed == 1 else max(1.0, float(listed))


def _of_zoo(command: Sequence[str]) -> float | None:
    """Return the steps that a command of RL Baselines3 Zoo asks for, its option `-n`; None for
    other commands.
    """
    if "--algo" in command and "-n" in command[:-1]:
        return number_of(command[command.index("-n") + 1])
    return None


def _of_nnunet(command: Sequence[str]) -> float | None:
    """Return the number of epochs that a command of nnU-Net trains for: that of the trainer that it
    names, otherwise 1,000. Return None for other commands."""
    if not any(word.endswith(("nnUNetv2_train", "nnUNet_train")) for word in command):
        return None
    found = _NNUNET.search(" ".join(command))
    return float(found[1]) if found else 1000.0


def work_of(
    command: Sequence[str], more: Mapping[str, float] | None = None, workdir: str = ""
) -> Work | None:
    """Return the amount of work of a command. Return None if the command does not state one
    amount: it states none, several different ones, or is a shell line of several runs.

    Args:
        more: settings found in files that the command names, as of `features.asked.of_files`.
            Arguments of the command override them.
        workdir: working directory of the command; it goes into the digest `rest`.
    """
    commands = one_of(command)
    training = [one for one in commands if trains(one.words)]
    commands = training if any(_stated(one.words) for one in training) else commands
    asked = of_commands(commands)
    if asked.runs and commands != [Simple(list(command))]:
        return None  # how long all of them take says nothing of one
    if len({found for one in commands if any((found := _of_words(one.words))[:2])}) > 1:
        return None  # which of them it is, is not known
    command = _that_trains(commands, command)
    whole = [f"{name}={value}" for name, value in (more or {}).items()] + list(command)
    amount, batch = _of_words(whole), None
    taken: set[int] = set()
    for name, value, where in settings_of(whole):
        plain, number = bare(name), number_of(value)
        if number is None:
            continue
        if _BATCH.match(plain):
            batch = number
        elif unit_of(name) not in _DONE and not _GPUS.match(plain):
            continue
        taken.update(where)
    unit = "epoch" if amount.epochs else "step"
    much = amount.epochs or amount.steps
    if much is None:
        return None
    program = program_of(whole)
    others = [w for i, w in enumerate(whole) if i not in taken and w != program]
    words = [re.sub(r"(?<![A-Za-z])\d[\d.e+-]*", "#", word) for word in others]
    return Work(unit, much, batch, *map(_digest, ([program], words, [workdir, *others])))


def _that_trains(commands: Sequence[Simple], command: Sequence[str]) -> Sequence[str]:
    """Return the command of a script that most likely trains: the first that states an amount of
    training, otherwise the last that runs a script file, otherwise `command`, the whole."""
    stated = [one.words for one in commands if any(_of_words(one.words)[:2])]
    scripts = [one.words for one in commands if _runs_script(one.words)]
    return next(iter(stated or scripts[-1:]), command)


def _runs_script(words: Sequence[str]) -> bool:
    return _SCRIPT.search(" ".join(words)) is not None


def of_settings(
    settings: object, whole: object = None, searched: set[int] | None = None
) -> dict[str, float]:
    """Return the settings that state an amount of work or a batch size: {name: number}. Nested
    settings are searched, too.

    Args:
        settings: a parsed file of settings, usually a mapping.
        whole: the file, where `settings` is a part of it. Settings may name others of the file,
            `${train.epochs}`.
        searched: identities of the mappings that were searched already, and are not searched again:
            those that references of YAML repeat.
    """
    found: dict[str, float] = {}
    searched = set() if searched is None else searched
    whole = settings if whole is None else whole
    if isinstance(settings, Mapping) and id(settings) not in searched:
        searched.add(id(settings))
        for name, value in settings.items():
            plain = bare(str(name)) if isinstance(name, str | int | float) else ""
            if isinstance(value, Mapping):
                found |= {} if _BESIDE.match(f"{plain}.") else of_settings(value, whole, searched)
            elif "repeat" in plain:
                continue  # of the data, as often as not
            elif unit_of(plain) or _BATCH.match(plain) or plain in _MORE:
                value = _named_by(value, whole)
                known = isinstance(value, int | float | str) and not isinstance(value, bool)
                number = number_of(str(value)) if known else None
                found |= {} if number is None else {plain: number}
    return found


MOST_SECTIONS = 20  # within each other, of a plain settings file
_SECTION = re.compile(
    r"\s{0,40}(?:\[([\w. -]{1,80})\]|([\w.-]{1,80})\s{0,4}[:=]?\s{0,4}\{)\s{0,4}$"
)
_LINE = re.compile(
    r"\s{0,40}([A-Za-z_][\w.-]{0,80})\s{0,20}[:=]\s{0,20}['\"]?([\d.,_e]{1,20}[kKM]?)['\"]?"
    r"\s{0,20}(?:[#;].{0,200})?$"
)


def of_lines(text: str) -> dict[str, float]:
    """Return the settings that a plain file states, a line each (`nepoch = 200`), as
    `of_settings` does; those of sections of evaluation are left out."""
    found, sections = dict[str, float](), list[str]()
    for line in text.splitlines():
        if section := _SECTION.match(line):
            sections = [section[1]] if section[1] else [*sections[:MOST_SECTIONS], section[2]]
        elif line.strip() in ("}", "},"):
            sections = sections[:-1]
        elif (one := _LINE.match(line)) and not any(
            _BESIDE.match(f"{at.lower()}.") for at in sections
        ):
            found |= of_settings({one[1]: one[2]})
    return found


def _named_by(value: object, whole: object) -> object:
    """Return the setting of a file that a value names (`${train.epochs}`), or the value itself."""
    name = _INTERPOLATED.fullmatch(value) if isinstance(value, str) else None
    if name is None:
        return value
    for part in name[1].split("."):
        whole = whole.get(part) if isinstance(whole, Mapping) else None
    return whole


def settings_of(command: Sequence[str]) -> Iterator[tuple[str, str, range]]:
    """Yield (name, value, indices of the arguments) for each argument or pair of arguments that may
    be a setting: `name=value` or `--name value`."""
    for i, part in enumerate(command):
        name, equals, value = part.partition("=")
        if equals:
            swept = _SWEPT.fullmatch(value) and not _THOUSANDS.fullmatch(value)
            if not swept:
                yield name, value, range(i, i + 1)
        elif i + 1 < len(command) and (part.startswith("-") or _YACS.match(part)):
            yield name, command[i + 1], range(i, i + 2)


def program_of(command: Sequence[str]) -> str:
    """Return the script or module that a command runs, even if a launcher such as torchrun runs it;
    if there is none, its first word without `=`, or ""."""
    for part in command:
        if not part.startswith("-") and re.search(r"\.(py|sh|R|jl|ipynb|lua|m)$", part):
            return part
    modules = [word for flag, word in pairwise(command) if flag == "-m"]
    plain = (word for word in command if "=" not in word)
    return modules[-1] if modules else next(plain, "")


def digest_of(command: Sequence[str], workdir: str) -> str:
    """Return a digest of a command and its working directory. Equal commands in equal directories
    have equal digests."""
    return _digest([workdir, *command])


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


_PATIENCE = re.compile(
    r"(?:patience['\"]?\s?[=:]\s?|(?:don't|do not|hasn't|not) improved? (?:for|in|since) "
    r"|[Ee]arly ?[Ss]topping counter: \d{1,6} out of )(\d{1,6})(?![\d.])"
)


def patience(line: str) -> float | None:
    """Return the number of units (epochs or steps) without an improvement after which the job
    stops, as read from a line that the job printed. Return None if the line does not say."""
    found = _PATIENCE.search(line)
    if found is not None:
        return float(found[1]) or None
    return None


_COUNTS = re.compile(r"train(?:ing)?[ _](?:step|iter|iteration)", re.IGNORECASE)


def printed(line: str) -> list[tuple[str, float]]:
    """Return (unit, number) for each setting in a line printed by a job that says how much it will
    do. `unit` is "epochs" or "steps"."""
    found = []
    for match in _PRINTED.finditer(line):
        unit, number = _known(match[1]), number_of(match[2].rstrip(",_"))
        if _COUNTS.fullmatch(match[1]):
            continue  # "train step: 120" is how far it is
        if unit in ("epochs", "steps") and number is not None:
            found.append((unit, number))
    return found


def unit_of(name: str) -> str | None:
    """Return the unit that a setting of this name counts, a key of `_COUNTED`; None for another."""
    return _known(name) or _by_parts(bare(name))


def _known(name: str) -> str | None:
    """Return the unit of a name that is one of `_COUNTED`."""
    plain = bare(name)
    return next((unit for unit, names in _NAMES.items() if names.match(plain)), None)


def _by_parts(name: str) -> str | None:
    """Return the unit of a name that is none of `_COUNTED`, by its parts: one of them says what is
    counted, and all others that it is counted to an end (`maxepoch`, `train_iter_num`)."""
    parts = [one for one in _RUN_ON.sub(r"\1_", name).split("_") if one]
    for unit, counted in _PARTS:
        others = [one for one in parts if not counted.fullmatch(one)]
        if len(others) == len(parts) - 1 and all(map(_ENDS.fullmatch, others)):
            many = "train" in others and len(parts) > 2  # train_iter_num
            return unit if any(map(_OF_ALL[unit].fullmatch, others)) or many else None
    return None


def bare(name: str) -> str:
    """Return the last part of a setting's name, as it is compared: `--Train.Max-Steps` is
    `max_steps`."""
    last = re.split(r"[./]", name.lstrip("-+").strip())[-1].lower()
    return re.sub(r"[- ]", "_", last)


def number_of(text: str) -> float | None:
    """Return the amount that a text is (`1_000`, `3e4`, `25k`); None for another."""
    match = _VALUE.match(text)
    if match is None:
        return None
    number = float(match[1].replace(",", "").replace("_", "")) * _SCALE[match[2]]
    return number if 0 < number <= MOST else None
