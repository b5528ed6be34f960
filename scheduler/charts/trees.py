"""Drawings of decision trees, with the path of one decision highlighted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isclose

from models.bundle import ACTIVE_SUM, SHARING_SCORES, Bundle, PairHinge, Tree
from scheduler.core.tree_steps import TreeStep
from scheduler.explain.words import percent

LEAF_WIDTH, LEVEL_HEIGHT, MARGIN = 46, 44, 14


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree: a question with its two branches, or an answer.

    Attributes:
        text: the question or the answer.
        rows: number of training rows that reached the node.
        short: a short form of the answer, shown under a leaf.
        yes, no: the branches of a question; None for an answer.
        lit: whether the node is on the path of the decision that is shown.
    """

    text: str
    rows: int
    short: str = ""
    yes: Branch | None = None
    no: Branch | None = None
    lit: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A node of a tree with its position in the drawing. `text` is its full text, `short` the text
    under a leaf; `lit`: whether it is highlighted.
    """

    x: float
    y: float
    text: str
    short: str
    lit: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a question to the node that follows one of its answers. `lit`: whether it is
    highlighted.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    lit: bool


@dataclass(frozen=True)
class Drawing:
    """A tree as it is drawn, with leaves from left (yes) to right (no).

    Attributes:
        root: root of the tree, for reading it question by question.
        path: the questions on the highlighted path with their answers, and the leaf at its end.
    """

    root: Branch
    width: float
    height: float
    nodes: Sequence[Placed]
    edges: Sequence[Edge]
    path: Sequence[str] = ()


def trees(bundle: Bundle) -> tuple[Drawing | None, Drawing | None, Drawing | None]:
    """Return drawings of the packing tree, the pair-speed tree and the hinge of pair speeds (a line
    with one bend) in a bundle of models; None for one that the bundle lacks.
    """
    return (
        drawing(_branch(bundle.packing.tree, _score)) if "packing" in bundle.parts else None,
        drawing(_branch(bundle.pair_speed.tree, _speed)) if "pair_speed" in bundle.parts else None,
        drawing(hinged(bundle.pair_hinge)) if "pair_hinge" in bundle.parts else None,
    )


def lit_by(bundle: Bundle, steps: Iterable[TreeStep]) -> Drawing | None:
    """Return the tree by which one of two jobs was judged, with its path highlighted. Return None
    where the steps belong to no tree of the bundle, but to another model's.

    Args:
        steps: steps about one of the jobs alone, as a decision recorded them.
    """
    compared = [step.compared for step in steps if step.compared is not None]
    if [name for name, *_ in compared] == [ACTIVE_SUM] and "pair_hinge" in bundle.parts:
        _, _, below, cut = compared[0]
        same = isclose(bundle.pair_hinge.knee_pct, cut, rel_tol=1e-4)
        return drawing(hinged(bundle.pair_hinge, lit=below)) if same else None
    for part, answer in (("pair_speed", _speed), ("packing", _score)):
        if compared and part in bundle.parts:
            tree: Tree = getattr(bundle, part).tree
            way = _way(tree, compared)
            if way is not None:
                return drawing(_branch(tree, answer, lit=way))
    return None


def hinged(hinge: PairHinge, lit: bool | None = None) -> Branch:
    """Return the hinge of pair speeds (a line with one bend) as a tree of one question.

    Args:
        lit: the answer in the decision that is shown, True: at or below the bend; None where no
            decision is shown.
    """
    name, unit = _READ[ACTIVE_SUM]
    slower = f"−{100 * hinge.slope:.2g} % a point"
    return Branch(
        text=f"{name} ≤ {hinge.knee_pct:.4g}{unit}",
        rows=0,
        yes=Branch(text="full speed", rows=0, short="100 %", lit=lit is True),
        no=Branch(text=slower, rows=0, short="less", lit=lit is False),
        lit=lit is not None,
    )


Compared = tuple[str, float | None, bool, float]


def _way(tree: Tree, compared: Sequence[Compared]) -> set[int] | None:
    """Return the indices of the nodes on the path that recorded comparisons took, from the root to
    a leaf; None where the comparisons are not this tree's.
    """
    at, way = 0, {0}
    for name, _, at_most, cut in compared:
        node = tree.nodes[at]
        if node.feature < 0 or tree.features[node.feature] != name:
            return None
        if not isclose(node.threshold, cut, rel_tol=1e-4):
            return None
        at = node.left if at_most else node.right
        way.add(at)
    return way if tree.nodes[at].feature < 0 else None


_READ = {
    "gpu_util_pct": ("GPU utilisation", " %"),
    "gpu_mem_util_pct": ("memory activity", " %"),
    "gpu_mem_mib": ("GPU memory", " MiB"),
    "gpu_util_sum_pct": ("both utilisations", " %"),
    "gpu_mem_util_sum_pct": ("both memory activities", " %"),
    ACTIVE_SUM: ("both SM activities", " %"),
    "gpu_util_minus_partner_pct": ("own − partner's utilisation", " points"),
}

Answer = Callable[[Sequence[float]], tuple[str, str]]


def _branch(tree: Tree, answer: Answer, at: int = 0, lit: Iterable[int] = ()) -> Branch:
    """Return a node of a tree with all nodes below it. A question with the same answer on both
    sides is replaced by that answer.

    Args:
        answer: function from a leaf's value to its full text and its short text.
        at: index of the node.
        lit: nodes on the path of the decision that is shown.
    """
    node = tree.nodes[at]
    text, short = answer(node.value)
    if node.feature < 0:
        return Branch(text, node.rows, short, lit=at in lit)
    feature = tree.features[node.feature]
    name, unit = _READ.get(feature, (feature, ""))
    question = "mixed precision off" if name == "amp" else f"{name} ≤ {node.threshold:.4g}{unit}"
    yes, no = (_branch(tree, answer, child, lit) for child in (node.left, node.right))
    if yes.yes is None and no.yes is None and yes.short == no.short:
        return Branch(text, node.rows, short, lit=at in lit)
    return Branch(text=question, rows=node.rows, short="", yes=yes, no=no, lit=at in lit)


def _score(value: Sequence[float]) -> tuple[str, str]:
    best = max(range(len(value)), key=value.__getitem__)
    return f"{SHARING_SCORES[best]} ({percent(value[best])})", SHARING_SCORES[best]


def _speed(value: Sequence[float]) -> tuple[str, str]:
    return f"{percent(value[0])} of its speed alone", percent(value[0])


def drawing(root: Branch) -> Drawing:
    """Return a tree with positions: every leaf has a column, and a question stands over the middle
    of its answers.
    """
    nodes, edges = list[Placed](), list[Edge]()
    leaves = 0

    def place(branch: Branch, depth: int) -> Placed:
        nonlocal leaves
        y = MARGIN + depth * LEVEL_HEIGHT
        if branch.yes is None or branch.no is None:
            leaves += 1
            placed = Placed(
                x=(leaves - 0.5) * LEAF_WIDTH,
                y=y,
                text=branch.text,
                short=branch.short,
                lit=branch.lit,
            )
        else:
            below = [place(branch.yes, depth + 1), place(branch.no, depth + 1)]
            x = sum(child.x for child in below) / 2
            placed = Placed(x=x, y=y, text=f"{branch.text}?", short="", lit=branch.lit)
            edges.extend(Edge(x1=x, y1=y, x2=child.x, y2=child.y, lit=child.lit) for child in below)
        nodes.append(placed)
        return placed

    place(root, 0)
    height = max(node.y for node in nodes) + 2 * MARGIN
    edges.sort(key=lambda edge: edge.lit)  # the lit ones on top
    return Drawing(
        root=root,
        width=leaves * LEAF_WIDTH,
        height=height,
        nodes=nodes,
        edges=edges,
        path=tuple(_path(root)),
    )


def _path(root: Branch) -> Iterator[str]:
    """Yield the questions on the highlighted path, each with its answer, and the leaf at its end.
    Yield nothing without such a path.
    """
    way = list(_lit(root))
    for branch, after in pairwise(way):
        yield f"{branch.text}? {'yes' if after is branch.yes else 'no'}"
    if way:
        yield way[-1].text


def _lit(branch: Branch | None) -> Iterator[Branch]:
    while branch is not None and branch.lit:
        yield branch
        branch = next((b for b in (branch.yes, branch.no) if b is not None and b.lit), None)
