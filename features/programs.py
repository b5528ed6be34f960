"""The amount of training that a Python program asks for by itself: what its loops count to, what it
hands to a trainer, and the defaults of its options. The program is parsed, never run.

>>> of_program("for epoch in range(30): ...", {})
{'epochs': 30.0}
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple, TypeGuard

from features.commands import MOST, bare, number_of, unit_of
from features.shell import SLIPS

MOST_CHARACTERS = 2**18  # of a program are read; a longer one is not
MOST_EXPRESSIONS = 20_000  # of a program are worked out
MOST_CALLS = 8  # of a function, and functions that take one argument, are looked at
DEPTH = 8  # of an expression, and of names that stand for names
_AMOUNTS = "epochs", "steps", "frames"
_EPOCH = re.compile(r"_?(?:epochs?|epoch_(?:i|idx|num|index|number)|i_?epoch|cur_epoch|ep)$")
_STEP = re.compile(
    r"_?(?:global_|train_|cur_|current_)?(?:steps?|iters?|iterations?|it|updates?|num_updates)"
    r"(?:_(?:num|idx|count|i))?$"
)
_ROUND = re.compile(r"_?(?:com\w{0,12}_|global_|server_)?(?:rounds?|rnd)(?:_(?:num|idx|id|i))?$")
_EPISODES = re.compile(r"(?:n|nb|num|number_of|max|total|train|num_train)?_?episodes?$")
# functions whose loops train nothing
_ASIDE = re.compile(
    r"_{0,2}(?:sample|generat|eval|test|valid|infer|predict|plot|show|draw|demo|render|visuali|warm)"
)
_FITS = re.compile(r"(?:fit|learn|train|run)(?:_\w{1,40})?$")  # trains at each call
_SEARCHES = re.compile(
    r"(?:(?:Halving)?(?:Grid|Random(?:ized)?)SearchCV|BayesSearchCV|cross_val_\w{1,20}|cross_validate)$"
)
_TRIALS = {"optimize": "n_trials", "fmin": "max_evals", "agent": "count"}  # of Optuna, W&B, ...
_RUN = re.compile(
    r"_?(?:i_|k_|cv_)?(?:fold|seed|run|trial|rep|repeat|split)(?:_(?:i|idx|num|id))?$"
)
_TRAINER = re.compile(
    r"(?:\w{0,60}(?:Trainer|Arguments|Args|Config)|(?:fit|learn|train|run)(?:_\w{1,40})?"
    r"|(?:LGBM|XGB|CatBoost|MLP|\w{0,4}GradientBoosting|RandomForest|ExtraTrees)\w{0,60})$"
)
_OPTIONS = "add_argument", "add_arg", "option", "Option"
_FLAGS = re.compile(r"DEFINE_(?:integer|float|string|multi_integer)$")
_SETTINGS = re.compile(r"\w{0,60}(?:dataclass|define|attrs|s|chz|wrap|store)$")
_PARSED = re.compile(r"(?:Base(?:Model|Settings)|Tap|TypedArgs|Serializable)$")
_IMPORT = re.compile(
    r"(?m)^[ \t]{0,8}(?:import[ \t]{1,4}([\w.]{1,80})|from[ \t]{1,4}(\.{0,3}[\w.]{0,80})[ \t]{1,4}"
    r"import[ \t]{1,4}([^\n#]{0,400}))"
)
_NAMED_FILE = re.compile(r"['\"]([\w./-]{1,100}\.(?:ya?ml|json|toml|conf|cfg|ini))['\"]")
_COMMANDS = re.compile(r"(?:command|config|automain|main|run|entrypoint|cli|Fire)$")
_SACRED = re.compile(r"config$")  # what such a function assigns are settings
_HANDED = re.compile(r"(?:Fire|call|run|cli|auto_cli|CLI|defopt)$")
_HUGGING = re.compile(r"(?:Seq2Seq)?TrainingArguments$")
_HUGGING_EPOCHS = 3.0  # of one that names neither epochs nor steps


class Imported(NamedTuple):
    """What a program does not say itself.

    Attributes:
        texts: of the modules that it imports.
        settings: of the settings file that it reads.
    """

    texts: Sequence[str] = ()
    settings: Mapping[str, float] = {}


def of_program(
    text: str, given: Mapping[str, str], beside: Imported | None = None
) -> dict[str, float]:
    """Return the amount of training that a program asks for, such as {"epochs": 30.0}; its names
    are those of `features.commands`. Return {} if it states none, or amounts that contradict each
    other.

    Args:
        text: the program's text.
        given: values of its options in its command.
        beside: where names are looked up that it does not assign.

    Raises one of `features.shell.SLIPS` if the text is no program.
    """
    if len(text) > MOST_CHARACTERS:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what another's program may be warned of
        return _Program(ast.parse(text), given, beside or Imported()).amount()


def imported(text: str) -> list[str]:
    """Return the names of the modules that a program imports; [] for one that is too long."""
    if len(text) > MOST_CHARACTERS:
        return []
    found = dict[str, None]()
    for plain, base, names in _IMPORT.findall(text):
        base = base.lstrip(".")
        found |= dict.fromkeys(one for one in (plain, base) if one)
        for name in names.split(",")[:20]:
            inner = name.partition(" as ")[0].strip(" ()\t")
            if inner.isidentifier():
                found[f"{base}.{inner}" if base else inner] = None
    return [name for name in found if all(name.split("."))]  # not "import ..." of a sentence


def settings_named(text: str) -> list[str]:
    """Return the names of settings files that stand in a program's texts."""
    return list(dict.fromkeys(_NAMED_FILE.findall(text[:MOST_CHARACTERS])))


def of_hydra(text: str) -> tuple[str, str]:
    """Return (folder, name) of the settings that a program of Hydra reads where its command names
    none, "" for each that it does not say."""
    if "hydra" not in text or len(text) > MOST_CHARACTERS:
        return "", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    for node in ast.walk(tree):
        of = node.func.value if isinstance(node, ast.Call) and _is_main(node.func) else None
        if isinstance(node, ast.Call) and isinstance(of, ast.Name) and of.id == "hydra":
            settings = {one.arg: _text(one.value) for one in node.keywords}
            return settings.get("config_path", ""), settings.get("config_name", "")
    return "", ""


def _is_main(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == "main"


class _Program:
    """A parsed program, and the values of its options and names."""

    def __init__(self, tree: ast.Module, given: Mapping[str, str], beside: Imported) -> None:
        self.budget = MOST_EXPRESSIONS
        self.settings = beside.settings
        self.given = {bare(name): value for name, value in given.items()}
        self.nodes = list(ast.walk(tree))
        self._take_spellings()
        self.epochs = list[ast.AST]()  # its outer loops over epochs
        self.modules = _on_import(beside.texts)
        self.others = _assigned(self.modules)
        self.options = dict(self._defaults(self.nodes))
        self.options = _agreed(self._defaults(self.modules)) | self.options
        for call in self._calls("set_defaults"):
            self.options |= {one.arg: one.value for one in call.keywords if one.arg}
        self.names = dict[str, list[ast.expr]]()
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value)
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        self.names.setdefault(key.value, []).append(value)

    def _take_spellings(self) -> None:
        """Take what the command gives an option by another spelling (`-e 5`) for what it gives it
        by its name."""
        for call in self._calls(*_OPTIONS):
            name, spellings = _spellings(call)
            for also in spellings if name else ():
                if also in self.given:
                    self.given.setdefault(name, self.given[also])

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        name = _text(target.slice) if isinstance(target, ast.Subscript) else _name(target)
        if name:
            self.names.setdefault(name, []).append(value)

    def amount(self) -> dict[str, float]:
        """Return what the program asks for. {} where two readings of it contradict each other."""
        try:
            found = self._read(self.nodes) or self._of_others()
        except _Contradicts:
            return {}
        if not found:
            return {}
        waits = [
            number
            for node in self._calls("EarlyStopping", "EarlyStoppingCallback", "early_stopping")
            for one in node.keywords
            if one.arg in ("patience", "early_stopping_patience", "stopping_rounds")
            and (number := self._number(one.value)) is not None
        ]
        runs = self._runs()
        found |= {"patience": waits[0]} if waits else {}
        return found | ({"runs": runs} if runs != 1 else {})

    def _calls(self, *names: str) -> Iterator[ast.Call]:
        for node in self.nodes:
            if isinstance(node, ast.Call) and _name(node.func) in names:
                yield node

    def _read(self, nodes: Sequence[ast.AST]) -> dict[str, float]:
        """Return the amount that nodes hand to a trainer, or that their loops count to; {} if they
        state none that is known.

        Raises _Contradicts if they state several.
        """
        loops = _Loops(nodes, self._number)
        self.epochs = loops.epochs if nodes is self.nodes else self.epochs
        handed, counted = self._of_trainers(nodes, loops), loops.amount()
        if handed and counted and handed != counted:
            raise _Contradicts
        return handed or counted

    def _of_others(self) -> dict[str, float]:
        """Return the amount that the defaults of the options name, or the modules that the program
        calls; {} if neither does.

        Raises _Contradicts if they do not agree.
        """
        options = self._of_options()
        inner = self._read(_called_in(self.modules, self.nodes)) if self.modules else {}
        if options and inner and options != inner:
            raise _Contradicts
        return options or inner

    def _defaults(self, nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
        """Yield (name, default) of each option that nodes declare."""
        handed = set[str]()
        for call in nodes:
            if not isinstance(call, ast.Call):
                continue
            name = _name(call.func)
            if name in _OPTIONS:
                yield from _option(call)
            elif _FLAGS.match(name) and len(call.args) > 1:
                yield bare(_text(call.args[0])), call.args[1]
            elif _HANDED.match(name):
                handed |= {_name(one) for one in call.args}
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield from _fields(node, node.name in handed)

    def _of_trainers(self, nodes: Sequence[ast.AST], loops: _Loops) -> dict[str, float]:
        """Return the amount that nodes hand to a trainer: `Trainer(max_epochs=3)`.

        Raises _Contradicts if they hand several.
        """
        ways = set[tuple[tuple[str, float], ...]]()
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            name = _name(node.func)
            if name == "HfArgumentParser" and any(
                _HUGGING.match(_name(one)) for one in ast.walk(node) if isinstance(one, ast.Name)
            ):
                ways.add((("epochs", _HUGGING_EPOCHS),))
            found = self._handed_to(node, name) if _TRAINER.match(name) else {}
            around = loops.around.get(id(node))
            if found and around is not None:  # a part of each pass of a loop over epochs
                if found not in ({"epochs": 1.0}, around):
                    raise _Contradicts
                found = around
            if found:
                ways.add(tuple(sorted(found.items())))
        if len(ways) > 1:
            raise _Contradicts
        return dict(ways.pop()) if ways else {}

    def _handed_to(self, node: ast.Call, name: str) -> dict[str, float]:
        """Return the amount that a call hands to a trainer."""
        found, open_ = dict[str, float](), False
        for setting, value in self._of_tables(node):
            unit = unit_of(setting)
            number = self._number(value) if unit in _AMOUNTS else None
            found |= {} if unit is None or number is None else {unit: number}
        for one in node.keywords:
            unit = unit_of(one.arg or "")
            if unit in _AMOUNTS and one.arg not in ("n_iter", "it"):
                number = self._number(one.value)
                found |= {} if number is None else {unit: number}
                open_ = open_ or (number is None and not _is_none(one.value))
            open_ = open_ or one.arg is None
        if not found and _HUGGING.match(name) and not open_:
            found["epochs"] = _HUGGING_EPOCHS
        if "steps" in found and _HUGGING.match(name):
            found.pop("epochs", None)
        return found

    def _of_tables(self, node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """Yield (name, value) of the settings in the dictionaries that a call is handed."""
        for one in [*node.args, *(keyword.value for keyword in node.keywords)]:
            named = self.names.get(_name(one), [])
            table = named[0] if len(named) == 1 else one
            if isinstance(table, ast.Dict):
                for key, value in zip(table.keys, table.values, strict=True):
                    if key is not None and (name := _text(key)):
                        yield name, value

    def _of_options(self) -> dict[str, float]:
        """Return the amount that the defaults of the options name; {} if they name several, or
        episodes too: the epochs beside them are passes over what an episode collected."""
        found = dict[str, set[float]]()
        for name, value in self.options.items():
            unit = unit_of(name)
            number = self._of_option(name, value) if unit in _AMOUNTS else None
            if unit and number is not None:
                found.setdefault(unit, set()).add(number)
        one = {unit: numbers.pop() for unit, numbers in found.items() if len(numbers) == 1}
        if "frames" in one:  # others are passes over what a step collected
            return {"frames": one["frames"]}
        if any(_EPISODES.match(bare(name)) for name in self.options):
            return {}
        return one if len(found) == len(one) == 1 else {}

    def _of_option(self, name: str, default: ast.expr) -> float | None:
        return number_of(self.given[name]) if name in self.given else self._number(default)

    def _runs(self) -> float:
        """Return how many runs the loops over folds, seeds or trials make, and those in which a
        model is fit; infinite if that is not known, 1 if there are none."""
        runs = 1.0
        for call in self._all_calls:
            name = _name(call.func)
            if name in _TRIALS:
                many = [one.value for one in call.keywords if one.arg == _TRIALS[name]]
                runs *= self._number(many[0] if many else None) or inf
            elif _SEARCHES.match(name):
                runs = inf
        fits = self._fitting
        for node in self.nodes:
            target = node.target if isinstance(node, ast.For) else None
            if isinstance(target, ast.Tuple) and target.elts:
                target = target.elts[0]
            if target is None or not isinstance(node, ast.For):
                continue
            end = _end(node.iter)
            names = _RUN.match(_name(target)) or unit_of(_name(end or target)) == "runs"
            if not names and id(node) not in fits:
                continue
            number = self._number(end) if end is not None else None
            if isinstance(node.iter, ast.List | ast.Tuple):
                number = float(len(node.iter.elts))
            runs *= number or self._splits or inf
        return runs

    @cached_property
    def _all_calls(self) -> list[ast.Call]:
        """All calls of the program."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def _fitting(self) -> set[int]:
        """The loops, by their ids, in each pass of which a trainer is called with an amount, or
        epochs are counted. Those over epochs or steps are none of them."""
        within = {id(one): node for node in self.nodes for one in ast.iter_child_nodes(node)}
        found, seen = set[int](), set[int]()
        fits = [one for one in self._all_calls if _FITS.match(_name(one.func))]
        for node in [*(one for one in fits if self._handed_to(one, _name(one.func))), *self.epochs]:
            around: ast.AST | None = node
            while around is not None and id(around) not in seen:
                seen.add(id(around))
                if isinstance(around, ast.FunctionDef | ast.Lambda):
                    break
                counted = None if around is node else _counted(around)
                counts = around is node or (counted is not None and _unit(*counted) != "")
                if isinstance(around, ast.For) and not counts:
                    found.add(id(around))
                around = within.get(id(around))
        return found

    @cached_property
    def _splits(self) -> float | None:
        """The number of folds that the program splits its data into, if it names one."""
        folds = {
            self._number(one.value)
            for node in self.nodes
            if isinstance(node, ast.Call) and _name(node.func).endswith("KFold")
            for one in node.keywords
            if one.arg == "n_splits"
        }
        return folds.pop() if len(folds) == 1 else None

    def _number(self, node: ast.expr | None, depth: int = 0) -> float | None:
        """Return the number that an expression stands for, as far as it is known."""
        self.budget -= 1
        if node is None or depth > DEPTH or self.budget < 0:
            return None
        if isinstance(node, ast.Constant):
            fits = isinstance(node.value, int | float | str) and not isinstance(node.value, bool)
            return number_of(str(node.value)) if fits else None
        if isinstance(node, ast.BinOp):
            one, two = self._number(node.left, depth + 1), self._number(node.right, depth + 1)
            if one is None or two is None:
                return None
            return _summed(node.op, one, two)
        if isinstance(node, ast.Call):
            name = _name(node.func)
            inner = next((one.value for one in node.keywords if one.arg == "default"), None)
            if name in ("int", "float") or (
                name in ("Option", "Field", "field", "Argument", "Param")
            ):
                return self._number(inner or next(iter(node.args), None), depth + 1)
            if name == "get" and len(node.args) == 2:
                return self._named(_text(node.args[0]), depth) or self._number(
                    node.args[1], depth + 1
                )
            return None
        if isinstance(node, ast.Subscript):
            return self._named(_text(node.slice), depth)
        return self._named(_name(node), depth)

    def _named(self, name: str, depth: int) -> float | None:
        """Return the number of an option or a name: as the command gives it, or else its only one
        in the program."""
        name = bare(name) if name else ""
        if name in self.given:
            return number_of(self.given[name])
        if name in self.options:
            return self._number(self.options[name], depth + 1)
        of = self.names.get(name) or self.names.get(name.upper()) or []
        of = (
            of or self._handed(name) or self.others.get(name) or self.others.get(name.upper()) or []
        )
        values = {self._number(one, depth + 2) for one in of[:8]}
        if not values and name in self.settings:
            return self.settings[name]
        return values.pop() if len(values) == 1 else None

    def _handed(self, name: str) -> list[ast.expr]:
        """Return what the calls of the program's functions hand to an argument of this name: its
        default where they hand nothing. [] if there is no such argument."""
        found = list[ast.expr]()
        for function, at, default in self._takes.get(name, []):
            for call, named in self._called.get(function, []):
                placed = call.args[at] if at is not None and at < len(call.args) else None
                handed = named.get(name) or placed or default
                found += [] if handed is None else [handed]
        return found

    @cached_property
    def _called(self) -> dict[str, list[tuple[ast.Call, dict[str, ast.expr]]]]:
        """The first calls in the program, each with what it hands by name, by the names of what
        they call."""
        found = dict[str, list[tuple[ast.Call, dict[str, ast.expr]]]]()
        for node in [*self.nodes, *self.modules]:
            if isinstance(node, ast.Call):
                calls = found.setdefault(_name(node.func), [])
                if len(calls) < MOST_CALLS:
                    named = [(bare(one.arg or ""), one.value) for one in node.keywords]
                    calls.append((node, dict(reversed(named))))  # the first of a name
        return found

    @cached_property
    def _takes(self) -> dict[str, list[tuple[str, int | None, ast.expr | None]]]:
        """The first functions of the program as (name; which argument it is, None: by name only;
        its default), by the names of their arguments."""
        found = dict[str, list[tuple[str, int | None, ast.expr | None]]]()
        for node in [*self.nodes, *self.modules]:
            if not isinstance(node, ast.FunctionDef):
                continue
            defaults = dict(_of_arguments(node.args))
            first = next(iter([*node.args.posonlyargs, *node.args.args]), None)
            own = first is not None and first.arg in ("self", "cls")  # it is not handed
            before = len(node.args.posonlyargs) - own
            places: list[tuple[int | None, ast.arg]] = [*enumerate(node.args.args, before)]
            for at, one in [*places, *((None, one) for one in node.args.kwonlyargs)]:
                takes = found.setdefault(bare(one.arg), [])
                if len(takes) < MOST_CALLS:
                    takes.append((node.name, at, defaults.get(bare(one.arg))))
        return found


class _Contradicts(Exception):
    """Two readings of a program do not agree on its amount."""


class _Loops:
    """The loops over epochs, steps and rounds among nodes, the outer ones.

    Attributes:
        around: what such a loop counts to, {unit: number}, by the ids of the nodes within it.
        epochs: those over epochs.
    """

    def __init__(
        self, nodes: Sequence[ast.AST], number: Callable[[ast.expr | None], float | None]
    ) -> None:
        self.nodes = nodes
        self.around = dict[int, dict[str, float]]()
        self.epochs = list[ast.AST]()
        self.counts: dict[str, set[float | None]] = {
            "rounds": set(),
            "epochs": set(),
            "steps": set(),
        }
        for node in nodes:  # the outer ones first
            counted = _counted(node) if id(node) not in self.around else None
            unit = "" if counted is None or id(node) in self._aside else _unit(*counted)
            if counted is None or not unit:
                continue
            if counted[0] == "ep" and id(node) in self._plays:
                continue
            end = number(counted[1])
            self.counts[unit].add(end)
            self.epochs += [node] if unit == "epochs" else []
            states = {} if end is None else {"steps" if unit == "rounds" else unit: end}
            self.around |= dict.fromkeys(map(id, ast.walk(node)), states)

    def amount(self) -> dict[str, float]:
        """Return what the loops over rounds count to, or else those over epochs, or those over
        steps; {} if that is not known.

        Raises _Contradicts if some count to different numbers.
        """
        for unit, numbers in self.counts.items():
            if len(numbers - {None}) > 1:
                raise _Contradicts
            if numbers:
                number = numbers.pop() if len(numbers) == 1 else None
                return {} if number is None else {"steps" if unit == "rounds" else unit: number}
        return {}

    @cached_property
    def _aside(self) -> set[int]:
        """The nodes, by their ids, of functions that evaluate, draw or generate."""
        found = set[int]()
        for node in self.nodes:
            aside = isinstance(node, ast.FunctionDef) and _ASIDE.match(node.name)
            if aside and id(node) not in found:
                found |= set(map(id, ast.walk(node)))
        return found

    @cached_property
    def _plays(self) -> set[int]:
        """The nodes, by their ids, in which an environment begins again, or an episode is named:
        the `ep` of such a loop is one."""
        within = {id(one): node for node in self.nodes for one in ast.iter_child_nodes(node)}
        found = set[int]()
        for node in self.nodes:
            resets = (
                isinstance(node, ast.Attribute)
                and node.attr == "reset"
                and "env" in _name(node.value)
            )
            around: ast.AST | None = node if resets or "episode" in _name(node) else None
            while around is not None and id(around) not in found:
                found.add(id(around))
                around = within.get(id(around))
        return found


def _unit(name: str, end: ast.expr) -> str:
    """Return what a loop counts by its name and its end: "rounds", "epochs" or "steps". Return ""
    if it counts something else."""
    if any("episode" in _name(one) for one in ast.walk(end)):
        return ""
    if unit_of(_name(end)) == "epochs" or _EPOCH.match(name):
        return "epochs"
    return "rounds" if _ROUND.match(name) else "steps" if _STEP.match(name) else ""


def _on_import(texts: Sequence[str]) -> list[ast.AST]:
    """Return the nodes of modules, without what they do only when they are run as programs. One
    that is no Python of today has none."""
    found = list[ast.AST]()
    for text in texts:
        try:
            body = ast.parse(text).body if len(text) <= MOST_CHARACTERS else []
        except SLIPS:
            continue
        for node in body:
            main = isinstance(node, ast.If) and any(
                _name(one) == "__name__" for one in ast.walk(node.test)
            )
            found += [] if main else ast.walk(node)
    return found


def _agreed(defaults: Iterable[tuple[str, ast.expr]]) -> dict[str, ast.expr]:
    """Return the defaults of options that several modules may declare: none of those that they
    declare with different ones."""
    found = dict[str, set[str]]()
    values = dict[str, ast.expr]()
    for name, value in defaults:
        found.setdefault(name, set()).add(ast.dump(value))
        values[name] = value
    return {name: values[name] for name, ways in found.items() if len(ways) == 1}


def _called_in(modules: Sequence[ast.AST], program: Sequence[ast.AST]) -> list[ast.AST]:
    """Return the nodes of the functions and classes of modules that a program calls, by their
    names, and those that they call."""
    bodies = dict[str, list[ast.AST]]()
    for node in modules:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bodies.setdefault(node.name, []).append(node)
    found, seen = list[ast.AST](), set[int]()
    calls = [node for node in program if isinstance(node, ast.Call)]
    while calls:
        for one in bodies.pop(_name(calls.pop().func), []):
            new = [node for node in ast.walk(one) if id(node) not in seen]
            seen |= set(map(id, new))
            found += new
            calls += [node for node in new if isinstance(node, ast.Call)]
    return found


def _assigned(nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return what nodes of modules assign, by name: variables, fields, and what their dictionaries
    hold."""
    found = dict[str, list[ast.expr]]()
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            found.setdefault(_name(node.targets[0]), []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.setdefault(_name(node.target), []).append(node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and (name := _text(key)):
                    found.setdefault(name, []).append(value)
    return found


def _of_arguments(arguments: ast.arguments) -> Iterable[tuple[str, ast.expr]]:
    """Yield (name, default) of each argument of a function that has a default."""
    named = [*arguments.posonlyargs, *arguments.args]
    defaults = arguments.defaults
    yield from (
        (bare(one.arg), value)
        for one, value in zip(named[len(named) - len(defaults) :], defaults, strict=True)
    )
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            yield bare(one.arg), default


def _counted(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return (name, end) of a loop that counts: `for name in range(end)`, `while name < end`, and
    `if name > end: break`."""
    if isinstance(node, ast.For):
        end = _end(node.iter)
        return None if end is None else (_name(node.target), end)
    test = node.test if isinstance(node, ast.While | ast.If) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    breaks = isinstance(node, ast.If) and any(isinstance(one, ast.Break) for one in node.body)
    within = ast.Lt | ast.LtE if isinstance(node, ast.While) else ast.Gt | ast.GtE
    if isinstance(test.ops[0], within) and (breaks or isinstance(node, ast.While)):
        return _name(test.left), test.comparators[0]
    return None


def _end(over: ast.expr) -> ast.expr | None:
    """Return what a loop counts to: the end of its `range`, also within `tqdm(...)`."""
    for _ in range(DEPTH):
        if not isinstance(over, ast.Call) or not over.args:
            return None
        name = _name(over.func)
        if name in ("range", "trange"):
            end = over.args[min(1, len(over.args) - 1)]
            begin = over.args[0] if len(over.args) > 1 else None
            if isinstance(begin, ast.Constant) and begin.value == 1:
                if isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add):
                    return (
                        end.right if _is_one(end.left) else end.left if _is_one(end.right) else end
                    )
                if isinstance(end, ast.Constant) and isinstance(end.value, int):
                    return ast.Constant(end.value - 1)
            return end
        over = over.args[0]
    return None


def _spellings(call: ast.Call) -> tuple[str, list[str]]:
    """Return the name by which a program knows the option that a call declares, and its spellings
    on a command: `epochs`, and `e` and `num_epochs`. The name is "" where there is none.
    """
    named = [text for one in call.args if (text := _text(one)).startswith("-")]
    long = [one for one in named if one.startswith("--")] or named or [""]
    chosen = [_text(one.value) for one in call.keywords if one.arg == "dest"]
    return bare((chosen or long)[0]), [bare(one) for one in named]


def _option(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, default) of the option that a call declares, if it has a default."""
    name, _ = _spellings(call)
    for one in call.keywords:
        if name and one.arg == "default":
            yield name, one.value


def _fields(node: ast.ClassDef | ast.FunctionDef, handed: bool) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, default) of each field of a class, or argument of a function, that makes the
    program's options.

    Args:
        handed: whether it is handed to what makes options of it (`fire.Fire`).
    """
    if isinstance(node, ast.FunctionDef):
        if handed or _marked(node, _COMMANDS):
            yield from _of_arguments(node.args)
        body = node.body if _marked(node, _SACRED) else []
    else:
        makes = (
            handed or _marked(node, _SETTINGS) or any(_PARSED.match(_name(b)) for b in node.bases)
        )
        body = node.body if makes else []
    for one in body:
        if isinstance(one, ast.AnnAssign) and one.value is not None:
            yield bare(_name(one.target)), one.value
        elif isinstance(one, ast.Assign) and isinstance(node, ast.FunctionDef):
            yield bare(_name(one.targets[0])), one.value


def _marked(node: ast.ClassDef | ast.FunctionDef, by: re.Pattern[str]) -> bool:
    """Return whether a class or function has a decorator of such a name."""
    marks = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(by.match(_name(one)) for one in marks)


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name, "" for another expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _summed(operator: ast.operator, one: float, two: float) -> float | None:
    """Return what an operation makes of two amounts, if that is an amount, too."""
    match operator:
        case ast.Add():
            found = one + two
        case ast.Sub():
            found = one - two
        case ast.Mult():
            found = one * two
        case ast.FloorDiv():
            found = one // two
        case _:
            return None
    return found if 0 < found <= MOST else None


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1
