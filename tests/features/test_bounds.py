"""What a command costs to be read does not multiply, whatever the files say that it names."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path

import pytest
import yaml

from features import asked, programs, shell
from features.amounts import Amount
from features.asked import MOST_FILES, MOST_FOLLOWED, MOST_PARSED, amount_of, of_files
from features.commands import of_command, of_commands, of_settings, work_of
from features.given import read_text
from features.programs import Imported, of_program
from features.recipes import of_target, of_task
from features.shell import A_COMMAND, MOST_CHARACTERS, MOST_COMMANDS, Simple, of_script, one_of

NONE = Amount()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of Python that are parsed."""
    texts, parse = list[str](), ast.parse

    def counted(text: str) -> ast.Module:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr("features.asked.ast.parse", counted)
    return texts


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read."""
    paths, plain = list[Path](), read_text

    def counted(path: Path, most: int, errors: str) -> str:
        paths.append(path)
        return plain(path, most, errors=errors)

    monkeypatch.setattr(asked, "read_text", counted)
    return paths


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked at in programs."""
    counted, name, bare = list[str](), programs._name, programs.bare

    def plain(node: ast.AST) -> str:
        counted.append(name(node))
        return counted[-1]

    def of_option(text: str) -> str:
        counted.append(bare(text))
        return counted[-1]

    monkeypatch.setattr(programs, "_name", plain)
    monkeypatch.setattr(programs, "bare", of_option)
    return counted


def test_folds_are_counted_once_for_all_loops(named: list[str]) -> None:
    loops = "for epoch in range(3): pass\nk = KFold(n_splits=2)\n" + "for fold in x: pass\n" * 90
    assert of_program(loops, {}) == {"epochs": 3, "runs": 2**90}
    assert named.count("KFold") < 10  # not by each loop


def test_arguments_and_episodes_are_looked_at_once_for_all_loops(named: list[str]) -> None:
    arguments = [f"a{i}" for i in range(60)]
    loops = "".join(f"for epoch in range({one}): ...\n" for one in arguments)
    for given in (", ".join(["3"] * 60), ", ".join(f"{one}=3" for one in arguments)):
        program = f"def f({', '.join(arguments)}): ...\nf({given})\n{loops}"
        assert of_program(program, {}) == {"epochs": 3}
    assert named.count("a7") < 20
    nested = "\n".join(f"{' ' * i}for ep in range(3):" for i in range(60))
    assert of_program(f"{nested}\n{' ' * 60}last_episode()\n", {}) == {}
    assert named.count("last_episode") < 10


@pytest.mark.parametrize("beside", ["print 'of Python 2'\n", "x = (\n", "\0"])
def test_a_module_that_is_no_program_takes_nothing_from_the_one_beside_it(
    beside: str, tmp_path: Path
) -> None:
    (tmp_path / "util.py").write_text(beside)
    program = "from util import show\nfor epoch in range(7): ...\n"
    for text in (program, f'"""It can\nimport ...\nand\nimport a..b\n"""\n{program}'):
        (tmp_path / "t.py").write_text(text)
        assert of_files(["python", "t.py"], tmp_path) == {"epochs": 7}


@pytest.mark.parametrize("call", ["f", "bash -c '{0} & {0} & wait'"])
def test_who_waits_within_a_call_waits_at_each_call(call: str) -> None:
    trains = "python t.py --epochs 3"
    function = f"f() {{\n{trains} &\n{trains} &\nwait\n}}\n"
    calls = f"{call.format(trains)}\n" * 2
    assert of_commands(of_script(function + calls)) == Amount(3, runs=2)
    aside = function.replace("wait\n", "") + "f\nf\nwait\n"
    assert of_commands(of_script(aside)) == Amount(3)


def test_a_long_function_is_not_read_at_each_of_many_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = list[int]()

    def commands(text: str) -> Iterable[tuple[str, list[str], str | None]]:
        taken.append(len(text))
        return split(text)

    split = shell._commands
    monkeypatch.setattr(shell, "_commands", commands)
    text = "f() {{\n{}python t.py --epochs 3\n}}\n" + "f\n" * 450
    of_script(text.format("# x\n" * 10_000))
    assert 0 < sum(taken) <= 2 * MOST_CHARACTERS + MOST_COMMANDS * A_COMMAND
    assert len(of_script(text.format("# x\n"))) == MOST_COMMANDS // 2  # a call, and what it runs


def test_of_a_sequence_no_more_is_made_than_is_kept() -> None:
    command = "for i in $(seq 0 1 999999); do python t.py --epochs 3; done"
    assert of_command(["bash", "-c", command]) == Amount(3, runs=inf)
    nines = "9" * 20
    assert one_of(["bash", "-c", f"for i in $(seq 0 {nines} 9); do a; done"])[0].times == 1


def test_what_is_sourced_is_read_once_and_pasted_up_to_a_limit(
    tmp_path: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = list[int]()

    def script(text: str, arguments: list[str]) -> list[Simple]:
        lengths.append(len(text))
        return of_script(text, arguments)

    monkeypatch.setattr(asked, "of_script", script)
    (tmp_path / "a.sh").write_text("E=3\n" + ". b.sh\n" * 3000 + "python t.py --epochs $E\n")
    for size in (10, MOST_CHARACTERS):
        read.clear()
        (tmp_path / "b.sh").write_text("#" * size + "\n")
        of_files(["bash", "a.sh"], tmp_path)
        assert [path.name for path in read].count("b.sh") == 1
    assert max(lengths) <= 2 * MOST_CHARACTERS + 1
    (tmp_path / "b.sh").write_text("E=4\n")
    assert of_files(["bash", "a.sh"], tmp_path) == {"epochs": 4}


def test_settings_that_name_themselves_are_parsed_once(tmp_path: Path, parsed: list[str]) -> None:
    bases = ", ".join(["'c.py', './c.py', 'd.py'"] * 60)
    (tmp_path / "c.py").write_text(f"_base_ = [{bases}]\nmax_epochs = 3\n")
    (tmp_path / "d.py").write_text(f"_base_ = [{bases}]\nmax_epochs = 9\n")
    assert of_files(["python", "t.py", "c.py"], tmp_path) == {"max_epochs": 3}
    assert len(parsed) == 2


def test_a_program_is_worked_out_once_for_all_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[dict[str, str]]()

    def counted(text: str, options: dict[str, str], beside: Imported) -> dict[str, float]:
        given.append(options)
        return of_program(text, options, beside)

    monkeypatch.setattr(asked, "of_program", counted)
    (tmp_path / "t.py").write_text("for epoch in range(7): ...\n")
    assert of_files(["bash", "-c", "python t.py --lr 1\n" * 50], tmp_path) == {
        "epochs": 7,
        "runs": 50,
    }
    assert len(given) == 1
    each = "\n".join(f"python t.py --lr {i}" for i in range(300))
    assert of_files(["bash", "-c", each], tmp_path) == {"epochs": 7, "runs": 300}
    assert len(given) <= 1 + MOST_FILES


def test_scripts_that_call_scripts_do_not_multiply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[int]()

    def script(text: str, arguments: list[str]) -> list[Simple]:
        taken.append(len(text))
        return of_script(text, arguments)

    monkeypatch.setattr(asked, "of_script", script)
    (tmp_path / "a.sh").write_text("bash a.sh\n" * 400)
    assert of_files(["bash", "a.sh"], tmp_path) == {}
    assert 0 < len(taken) <= MOST_FOLLOWED / 400 + 1
    taken.clear()
    (tmp_path / "a.sh").write_text("bash a.sh\n" * 9 + "#" * MOST_CHARACTERS)
    assert of_files(["bash", "a.sh"], tmp_path) == {}
    assert 0 < sum(taken) <= MOST_PARSED


def _references(levels: int, begin: str, end: str) -> str:
    """Nine references to nine references to nine and so on, in YAML."""
    lines = [f"a0: &a0 {begin}x: 1{end}" if begin == "{" else "a0: &a0 [x]"]
    for i in range(1, levels):
        items = (f"k{n}: *a{i - 1}" if begin == "{" else f"*a{i - 1}" for n in range(9))
        lines.append(f"a{i}: &a{i} {begin}{', '.join(items)}{end}")
    return "\n".join(lines)


def test_references_of_references_are_not_written_out() -> None:
    text = _references(20, "[", "]")
    text += "\nservices: {t: {command: *a19}, u: {command: [python, 3, *a19, 0.5]}}\n"
    assert of_task(text, ["docker", "compose", "run", "t"]) == ""
    assert of_task(text, ["docker", "compose", "run", "u"]) == "python 3 0.5"


def test_mappings_that_references_repeat_are_searched_once() -> None:
    text = _references(20, "{", "}") + "\ntrain: {epochs: 3}\n"
    assert of_settings(yaml.safe_load(text)) == {"epochs": 3}


def test_merges_of_merges_are_refused(tmp_path: Path) -> None:
    lines = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    text = "\n".join(["a0: &a0 {x: 1}", *lines, "epochs: 3"])
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text("a: &a {epochs: 3}\nb:\n  <<: *a\n  batch_size: 4\n")
    assert of_files(["python", "t.py", "a.yaml"], tmp_path) == {}
    assert of_files(["python", "t.py", "b.yaml"], tmp_path) == {"epochs": 3, "batch_size": 4}
    assert of_task(text + "\nservices: {}", ["docker", "run", "t"]) == ""


def test_a_module_of_a_name_too_long_is_none(tmp_path: Path) -> None:
    assert of_files(["python", "-m", "a" * 300, "x"], tmp_path) == {}


def test_a_target_that_others_need_is_made_once() -> None:
    text = "\n".join(f"a{i}: {f'a{i + 1} ' * 20}\n\trun {i}" for i in range(4))
    assert of_target(text, "make", ["a0"]).splitlines() == ["run 3", "run 2", "run 1", "run 0"]
    text = f"X={'$(Y)' * 90}\nY={'y' * 400}\na:\n\trun {'$(X)' * 900}\n"
    assert len(of_target(text, "make", ["a"])) < 5000


@pytest.mark.parametrize(
    "script",
    [
        "for i in $(seq ² 1 5); do python t.py --epochs 3; done",
        "for i in $(seq 1 ² 5); do python t.py --epochs 3; done",
        "A[@]=' '; python ${A[0]} --epochs 3",
        "A=(1 2); python ${A[²]} --epochs 3",
        "A=(1 2); python ${A[000000000999]} --epochs 3",
        "i=²; while [ $i -lt 3 ]; do python t.py --epochs 3; i=$((i+1)); done",
        "i=1; while [ $i -lt '' ]; do python t.py --epochs 3; i=$((i+1)); done",
        "seq ² | xargs -n1 python t.py --epochs 3",
    ],
)
def test_what_only_looks_like_a_number_is_none(script: str, tmp_path: Path) -> None:
    assert of_command(["bash", "-c", script]).epochs in (3, None)
    assert of_files(["bash", "-c", script], tmp_path) == {}


def _raises(*_: object) -> None:
    raise OverflowError


READERS: list[Callable[[Path], Iterable[object] | None]] = [
    lambda path: of_files(["bash", "-c", "python t.py; bash a.sh"], path),
    lambda path: amount_of(["bash", "-c", "python t.py"], path),
    lambda _: of_command(["bash", "-c", "python t.py"]),
    lambda _: [work_of(["bash", "-c", "python t.py"])],
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", ["features.shell._commands", "features.asked._of"])
def test_a_slip_in_reading_a_command_is_nobodys_error(
    reader: Callable[[Path], Iterable[object] | None],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a.sh").write_text("python t.py --epochs 3")
    monkeypatch.setattr(place, _raises)
    assert not any(reader(tmp_path) or ())
    assert of_script("python t.py") in ([], [Simple(["python", "t.py"])])


@pytest.mark.parametrize(
    ("script", "amount"),
    [
        ("seq 5 | xargs -n2 python t.py --epochs 3", Amount(3, runs=inf)),
        ("seq 5 | xargs -n 1 python t.py --epochs 3", Amount(3, runs=5)),
        ("seq 5 | xargs -P 4 -r --max-args=1 python t.py --epochs 3", Amount(3, runs=5)),
        ("seq 5 | xargs -P4 -I{} python t.py -n 2 --epochs 3", Amount(3, runs=5)),
        ("seq 5 | xargs python t.py -n 1 --epochs 3", Amount(3)),
        ("seq 10 | parallel -N 5 python t.py --epochs 3", Amount(3, runs=inf)),
        ("parallel -j 2 -N2 python t.py --epochs 3 ::: a b c d", Amount(3, runs=inf)),
        ("parallel -j 2 python t.py --epochs 3 ::: a b c d", Amount(3, runs=4)),
        ("echo 1 2 3 | xargs -L1 python t.py --epochs 3", Amount(3)),
        ("seq 4 | xargs -L2 python t.py --epochs 3", Amount(3, runs=inf)),
        ("for i in $(seq 1 0); do python t.py --epochs 9; done; python t.py --epochs 3", Amount(3)),
        ("for i in $(seq 1 0); do python t.py --epochs 9; done", NONE),
        ("bash <<A <<B\npython t.py --epochs 9\nA\npython t.py --epochs 3\nB\n", Amount(3)),
        ("x=$((1<<EOF))\npython t.py --epochs 3", Amount(3)),
        ("python a.py # <<EOF\npython t.py --epochs 3\nEOF", Amount(3)),
        ("echo '<<EOF' \"<<EOF\" \\<<EOF\npython t.py --epochs 3\nEOF", Amount(3)),
        ("cat <<EOF\npython t.py --epochs 3\n", Amount(3)),
        ("bash <<'EOF'\npython t.py --epochs 3\nEOF\n", Amount(3)),
        ("cat > x <<EOF\npython t.py --epochs 9\nEOF\npython t.py --epochs 3\n", Amount(3)),
    ],
)
def test_runs_and_here_documents_are_counted_where_they_are(script: str, amount: Amount) -> None:
    assert of_command(["bash", "-c", script]) == amount, shlex.split(script, comments=True)


def test_of_the_modules_that_a_program_imports_a_few_are_read(
    tmp_path: Path, read: list[Path]
) -> None:
    outside = "".join(f"import outside_{i}\n" for i in range(60))
    for i in range(30):
        (tmp_path / f"m{i}.py").write_text("import t\nepochs = 9\n")
    inside = "".join(f"from m{i} import epochs\n" for i in range(30))
    (tmp_path / "t.py").write_text(f"{outside}{inside}for epoch in range(epochs): ...\n")
    assert of_files(["python", "t.py"], tmp_path) == {"epochs": 9}
    assert len([path for path in read if path.name.startswith("m")]) == 8
    (tmp_path / "t.py").write_text(f"{outside}import m7\nfor epoch in range(m7.epochs): ...\n")
    assert of_files(["python", "t.py"], tmp_path) == {"epochs": 9}
