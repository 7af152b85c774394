"""What the words of a verdict mean, for readers who meet them for the first time."""

from __future__ import annotations

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("faster, slower", "The whole interval lies beyond the margin."),
    (
        "probably faster, slower",
        "The interval excludes “no effect”, but not an effect below the margin: its size is open.",
    ),
    ("better, worse, higher, lower", "The same, for responses that are neither times nor rates."),
    (
        "equivalent",
        "Every difference beyond the margin is excluded, which is more than not having found one. Each side is tested "
        "by itself, so the interval, which holds on both sides at once, may end a little beyond the margin.",
    ),
    (
        "detectably faster or slower",
        "Equivalent, and yet not zero: there is a difference, too small to matter by the margin chosen.",
    ),
    ("undecided", "None of these. The interval says which effects are excluded all the same."),
    ("invalid", "The trial's own controls failed, so it gives no verdict at all."),
    ("margin", "The smallest relative effect that the user cares about, fixed before the trial."),
    (
        "interval",
        "Holds the effect with the stated error rate however often one looked and whenever one stopped, and over "
        "all primary comparisons together. It rests on the random order of the runs, not on normal distributions.",
    ),
    (
        "block",
        "A short stretch of time in which every arm runs once, in random order; comparisons are made within it.",
    ),
    (
        "interaction",
        "What one setting does to the effect of another. “Faster together” means faster than the two separate effects "
        "multiply to.",
    ),
    ("pooled", "The mean of an effect over all conditions of a workload."),
    ("arm", "One member of a block: a treatment, or a control."),
    (
        "data at risk",
        "Where somebody keeps this setting, data that were synced may be lost or wrong after a power cut, a crash or the "
        "failure of a disk. “Trade-off”: it costs latency, memory, or data that nobody has synced. “Not judged”: not known.",
    ),
    ("void", "A block thrown out whole by a rule that is the same for all arms and does not see the result."),
)
