"""The systems of the sources: what each is, in a paragraph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """A system.

    Attributes:
        title, source: its name, and where it was published.
        about: what it is.
        against: what it was reproduced against, and what could not be.
        tags: first words of the names that the figures of `benchmarks.systems` give it.
        policies, prefixes: names of its policies in a comparison, and what they begin with.
    """

    title: str
    source: str
    about: str
    against: str
    tags: tuple[str, ...]
    policies: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


KNOWN = (
    System(
        "Pollux",
        "OSDI 2021",
        "Sets the number of GPUs and the batch size of every job together, for the most goodput: "
        "throughput times the statistical efficiency that the noise of the gradient allows. A "
        "genetic search shares the cluster by the speedups this promises.",
        "The completion times its artifact recorded on eight workloads, and its throughput model "
        "on measured step times.",
        ("pollux",),
        ("pollux",),
    ),
    System(
        "Optimus",
        "EuroSys 2018",
        "Predicts how many epochs a job has left from its loss, and how fast it steps from its "
        "workers and servers, and gives the next task to whoever gains most. Here it also runs "
        "without parameter servers, on losses that rise and fall, and with restarts that cost.",
        "The oracle variant of Pollux' evaluation, job by job; its own models on synthetic data "
        "and on measured applications. Its published speedups over DRF do not carry over.",
        ("optimus", "mxnet"),
        ("optimus", "optimus-oracle"),
    ),
    System(
        "SMD",
        "INFOCOM 2021",
        "Admits jobs by the utility of their completion, a knapsack with several resources, each "
        "job with the workers and servers that make it fastest within its limit.",
        "A reconstruction: no figure of the paper is public. Its two problems are held against "
        "exact answers.",
        ("smd",),
        ("smd",),
    ),
    System(
        "DRF, Tetris and SRTF",
        "NSDI 2011, SIGCOMM 2014",
        "The baselines of the sources: equal dominant shares; packing by alignment with what is "
        "free, and by remaining work; the shortest remaining time.",
        "Runs of independent implementations on the same workloads.",
        ("drf", "tetris", "srtf"),
        ("drf", "tetris", "srtf"),
    ),
    System(
        "Tiresias",
        "NSDI 2019",
        "Needs no prediction: jobs that have had little GPU-time go first, in a few queues, and "
        "are stopped when they have had more. A Gittins index can rank within a queue; models "
        "with one large tensor are kept together.",
        "Every integer of its published simulator, and the completion times recorded with Pollux' "
        "artifact.",
        ("tiresias",),
        ("tiresias",),
    ),
    System(
        "Gavel",
        "OSDI 2020",
        "States policies as optimisation over the time each job spends on each GPU type, alone or "
        "beside another, and realises the shares in rounds.",
        "Its own simulator on two traces. The optimum is not unique, and the choice among optima "
        "moves averages by some percent.",
        ("gavel",),
        (),
        ("gavel",),
    ),
    System(
        "Helios QSSF and CES",
        "SC 2021",
        "Quasi-shortest service first: predicted GPU-time orders the queue, a rolling mean blended "
        "with gradient boosting. Beside it, advice on which nodes could sleep.",
        "Its rules only: job names, training code and node series are not public. The forecasts "
        "behind the advice do not look ahead here, as the published ones did.",
        ("helios",),
        ("qssf",),
    ),
    System(
        "Horus-like",
        "ours, after TPDS 2022",
        "Shares GPUs when predicted utilisations sum to no more than a limit, the least first. "
        "Predictions come from jobs like it, not from the graph of a model.",
        "Nothing: predictor and constants of Horus are not public, so this is ours.",
        ("horus-like", "horus"),
        ("horus",),
    ),
    System(
        "Lucid",
        "ASPLOS 2023",
        "Looks at each job on a few GPUs first, orders by predicted GPU-time and packs where the "
        "sharing scores allow it. No preemption.",
        "The public re-run of its artifact, to the second, with its defects as named quirks.",
        ("lucid",),
        ("lucid",),
    ),
    System(
        "Pellucid",
        "this project",
        "Lucid's idea with what its reviewers missed: bounded waiting, causal predictions, honest "
        "pair speeds, and a reason for every decision.",
        "Itself against the others, on the same seeds.",
        ("pellucid",),
        ("pellucid",),
    ),
)
