"""Agents that try many settings on one machine, most of which do nothing: what they keep, with and without the account.

A trial is the project's own bets on blocks of three runs in drawn order; the noise of each is one of ``NOISES``. An agent
sees every number, and keeps a setting as soon as it may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from iotrial.stats.account import LEVEL, covered, is_covered, needed
from iotrial.stats.betting import Blocks
from iotrial.stats.questions import log_evidence
from simulated.noise import NOISES, Floats, Rng
from simulated.order import by_arm, quick_orders

MARGIN = math.log1p(0.05)
#: standard deviation of the contrast of a block, as a logarithm
SCATTER = 0.05
PLACEBOS, REAL = 100, 5
BLOCKS = 120
#: of the real settings, in standard deviations of a block
EFFECTS = (0.5, 1.0, 2.0)
RUNS = 200


@dataclass(frozen=True, slots=True)
class Agent:
    """How somebody asks. ``peeks``: looks after every block and stops when it suits. ``names``: how often a setting that
    fails is tried, each time as another trial. ``returns``: goes back to old trials and continues them, the most promising
    ones first. ``easy``: first tries and keeps this many settings that are known to help. ``drops``: if a placebo is kept at
    the end, takes back everything else.
    """

    peeks: bool = True
    names: int = 1
    returns: bool = False
    easy: int = 0
    drops: bool = False


AGENTS = {
    "one look": Agent(peeks=False),
    "stops early": Agent(),
    "renames and retries": Agent(names=3),
    "goes back to old trials": Agent(returns=True),
    "keeps 20 easy ones first": Agent(easy=20),
    "the same, and takes back all but placebos": Agent(easy=20, drops=True),
}


@cache
def _unit(noise: str) -> float:
    """Return the standard deviation of the contrasts of a trial with this noise: the median over many trials."""
    rng = np.random.default_rng(1)
    return float(np.median(_contrasts(rng, noise, 400)[0].std(axis=1)))


def _contrasts(rng: Rng, noise: str, trials: int) -> tuple[Floats, Floats]:
    """Return contrasts of two identical arms, and of a copy of the reference (trials by blocks)."""
    orders = quick_orders(rng, trials, BLOCKS, 3)
    arms = by_arm(NOISES[noise](rng, trials, 3 * BLOCKS), orders)
    return arms[:, :, 1] - arms[:, :, 0], arms[:, :, 2] - arms[:, :, 0]


def evidence_path(rng: Rng, effect: float) -> Floats:
    """Return the e-value after every block of one trial. ``effect``: in block SDs, negative is better."""
    noise = list(NOISES)[rng.integers(len(NOISES))]
    contrasts, copies = _contrasts(rng, noise, 1)
    unit = SCATTER / _unit(noise)
    blocks = Blocks.of(unit * contrasts[0] + SCATTER * effect, unit * copies[0])
    return np.exp(np.minimum(log_evidence(blocks, MARGIN), 600.0))


@dataclass(slots=True)
class Session:
    """What one agent has asked and kept. ``alone``: without the account, each trial at its own level."""

    alone: bool = False
    paths: list[Floats] = field(default_factory=list)
    real: list[bool] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)

    def limit(self, place: int) -> float:
        """Return the evidence with which a question may be kept now."""
        return 1.0 / LEVEL if self.alone else float(needed(self.evidence, self.kept)[place])

    def ask(self, path: Floats, blocks: int, *, real: bool, peeks: bool) -> bool:
        """Run a trial of at most this number of blocks; return whether it is kept."""
        place = len(self.evidence)
        self.paths.append(path)
        self.real.append(real)
        limit = self.limit(place)
        self.evidence.append(1.0)
        return self._go_on(place, limit, 0, blocks, peeks=peeks)

    def go_on(self, place: int, seen: int, blocks: int) -> bool:
        """Continue a trial that has had this number of blocks."""
        return self._go_on(place, self.limit(place), seen, blocks, peeks=True)

    def _go_on(self, place: int, limit: float, seen: int, blocks: int, *, peeks: bool) -> bool:
        path = self.paths[place][:blocks]
        enough = np.flatnonzero(path[seen:] >= limit) + seen if peeks else np.array([], dtype=int)
        last = int(enough[0]) if enough.size else blocks - 1
        self.evidence[place] = float(path[last])
        if self.evidence[place] < limit:
            return False
        self.kept.add(place)
        assert self.alone or is_covered(self.evidence, self.kept)
        return True

    def wrong(self) -> int:
        """Return how many of the kept do nothing."""
        return sum(not self.real[place] for place in self.kept)


def session(
    rng: Rng,
    agent: Agent,
    effect: float,
    *,
    alone: bool = False,
    placebos: int = PLACEBOS,
    real: int = REAL,
) -> Session:
    """Let an agent try settings that do nothing (``placebos``) and ``real`` ones, in random order."""
    own = Session(alone)
    for _ in range(agent.easy):
        own.ask(evidence_path(rng, -4.0), BLOCKS, real=True, peeks=agent.peeks)
    first = BLOCKS // 2 if agent.returns else BLOCKS
    for is_real in rng.permutation([True] * real + [False] * placebos).tolist():
        for _ in range(agent.names):
            if own.ask(evidence_path(rng, -effect * is_real), first, real=is_real, peeks=agent.peeks):
                break
    if agent.returns:
        open_ones = [place for place in range(len(own.evidence)) if place not in own.kept]
        for place in sorted(open_ones, key=lambda place: -own.evidence[place]):
            own.go_on(place, first, BLOCKS)
    if agent.drops and own.wrong():
        own.kept = {place for place in own.kept if not own.real[place]}
        own.kept = own.kept if alone else set(covered(own.evidence, own.kept))
    return own


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of several sessions: the mean wrong share of what is kept, with its standard error, and the shares of all placebos and
    of all real settings that are kept."""

    wrong: float
    error: float
    placebos: float
    real: float


def outcome(sessions: Sequence[Session], agent: Agent) -> Outcome:
    """Sum up sessions of one agent."""
    shares = np.array([one.wrong() / max(1, len(one.kept)) for one in sessions])
    asked = PLACEBOS * len(sessions)
    real = sum(
        sum(one.real[place] for place in one.kept if place >= agent.easy) for one in sessions
    )  # the easy ones come first
    return Outcome(
        float(shares.mean()),
        float(shares.std(ddof=1) / math.sqrt(len(shares))),
        sum(one.wrong() for one in sessions) / asked,
        real / (REAL * len(sessions)),
    )


def account(rng: Rng, scale: float) -> str:
    """Tabulate what agents keep."""
    runs = max(20, int(RUNS * scale))
    out = [
        f"**Share of what is kept that does nothing: {PLACEBOS} settings that do nothing, {REAL} that help, "
        f"{runs} machines a row, trials of up to {BLOCKS} blocks**",
        "",
        "Effects in block SDs; the margin is one. Wrong share: mean over machines, ± its standard error. Alone: the same "
        "agent, with each trial at its own 5 %.",
        "",
        "| agent | effect | wrong share of what is kept | placebos kept | real ones kept | alone: wrong share "
        "| alone: placebos kept |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, agent in AGENTS.items():
        for effect in EFFECTS if name == "stops early" else (1.0,):
            own = outcome([session(rng, agent, effect) for _ in range(runs)], agent)
            alone = outcome([session(rng, agent, effect, alone=True) for _ in range(runs)], agent)
            real = "–" if agent.drops else f"{own.real:.1%}"
            out.append(
                f"| {name} | {effect:g} | {own.wrong:.2%} ± {own.error:.2%} | {own.placebos:.2%} | {real} | "
                f"{alone.wrong:.0%} | {alone.placebos:.1%} |"
            )
    return "\n".join(out)
