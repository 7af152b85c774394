"""``iotrial best``: choose among many settings, and confirm the choice."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from iotrial.cli.best_summary import SearchResult, print_outcome
from iotrial.cli.consent import seek_consent
from iotrial.cli.finish import EXIT_INVALID, EXIT_NO_ANSWER, refuse_unwritable, status_of, write_page
from iotrial.cli.options import (
    AFTER,
    OwnCommand,
    compared,
    force_option,
    json_option,
    level_and_seed,
    margin_option,
    no_controls_option,
    page_option,
    sure,
    time_option,
    where,
)
from iotrial.cli.output import tell
from iotrial.cli.own_command import (
    ORIGIN,
    command_group,
    own_command_options,
    own_request,
    plan_option,
    wish_of,
)
from iotrial.cli.planned_changes import intent_lines
from iotrial.cli.resume_run import measure_more
from iotrial.cli.run_request import RunRequest, narrowed, quantity_of, resolve_study
from iotrial.cli.trial_run import carry_out
from iotrial.design.keyed import new_seed
from iotrial.errors import RequestError, unknown
from iotrial.paths import store_path
from iotrial.report.best import candidate, confirming_effects, recommended
from iotrial.report.document import Document
from iotrial.report.durability import harm_seen
from iotrial.report.opening import document_of, spec_of
from iotrial.report.render import html_report
from iotrial.runner.planning import default_folder
from iotrial.runner.quick_study import SETTINGS, Wish, study_text
from iotrial.runner.resolve import Resolved
from iotrial.runner.start import Ended
from iotrial.stats.model import Left
from iotrial.store import Store
from iotrial.store.checksums import now
from iotrial.store.model import Continuation, StoredTrial, TrialState
from iotrial.study.catalogue import find
from iotrial.study.model import BEST, TODAY, Design, DesignKind, Factor, Role, Scale, Study
from iotrial.study.reader import read_study
from iotrial.study.select import held
from iotrial.tune.search import Proposals
from iotrial.tune.space import ALL, Choice, Space, space_of_factors, space_of_settings
from iotrial.tune.stages import (
    AGAIN,
    CONFIRM_SHARE,
    MOST_ARMS,
    MOST_PROPOSED,
    NEW,
    RACE_SHARE,
    ROUND_BLOCKS,
    SEARCH_SHARE,
    Confirmed,
    Stage,
    confirmation,
    confirmed,
    race_stage,
    with_margin_left,
)
from iotrial.units import parse_duration, parse_margin

#: of a stage; the time of the search is kept but for this
_LEAST_S = 1.0
#: exit statuses above it are those of signals
_SIGNALLED = 128


_EXAMPLE = "iotrial best block.scheduler=none,mq-deadline -- grep -r error /var/log"


class _Cut(Exception):
    """A stage was interrupted, or its controls failed: the exit status."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class _Search:
    """Runs the stages, each as a separate trial, within the time. ``trials``: the documents of those that have ended.

    ``key`` is that of the words of the command line. ``earlier``: the stored stages of the same search, to be resumed.
    """

    def __init__(
        self,
        base: Wish | Study,
        space: Space,
        request: RunRequest,
        seed: str,
        *,
        quiet: bool,
        key: str = "",
        earlier: Sequence[StoredTrial] = (),
    ) -> None:
        self._base, self._space, self._request, self._seed, self._quiet = base, space, request, seed, quiet
        self._key, self._earlier = key, {_stage_of(one)["stage"]: one for one in earlier}
        self._began = time.monotonic()
        #: seconds of the stages that ran before the search was resumed
        self._before_s = 0.0
        self.time_s = quantity_of("--time", request.time, parse_duration) or 0.0
        self.trials: list[Document] = []

    @property
    def left_s(self) -> float:
        return max(_LEAST_S, self.time_s - self._before_s - (time.monotonic() - self._began))

    def study(self, stage: Stage) -> Study:
        """Return the study of a stage."""
        if isinstance(self._base, Wish):
            wish = replace(self._base, bundles=stage.levels, design=stage.design)
            return read_study(study_text(wish), ORIGIN, trusted=True)
        name = SETTINGS
        while name in {factor.name for factor in self._base.condition_factors}:
            name += "-chosen"
        labels = tuple(level.label for level in stage.levels)
        factor = Factor(name, Role.TREATMENT, stage.levels, labels[0], labels)
        return structs.replace(
            self._base,
            name=f"{BEST}{self._base.name.rpartition('/')[2]}",
            factors=(factor, *self._base.condition_factors),
            design=Design(kind=stage.design),
            claims=(),
            account=False,
            check=self._base.check and stage.design is DesignKind.CONFIRM,
        )

    def run(self, stage: Stage, time_s: float, *, explore: bool = False) -> Document:
        """Run a stage, or take it from the store. ``explore``: a few blocks without controls, that conclude nothing.

        Raises _Cut, and RequestError if a stored stage had other settings.
        """
        number = len(self.trials)
        if (stored := self._earlier.get(number)) is not None:
            return self._taken_up(stored, stage)
        seed = hashlib.blake2b(f"{self._seed} {number}".encode(), digest_size=16).hexdigest()
        request = replace(
            self._request,
            time=f"{max(_LEAST_S, time_s):.1f} s",
            seed=seed,
            blocks=ROUND_BLOCKS if explore else self._request.blocks,
            controls=self._request.controls and not explore,
            no_stop=explore,
            margin=self._request.margin if stage.margin is None else f"{floor(1e5 * stage.margin) / 1e3} %",
        )
        store, ended = carry_out(
            narrowed(self.study(stage), request),
            request,
            quiet=self._quiet or explore,
            agreed=True,
            options={"best": {"stage": number, "seed": self._seed, "key": self._key, "explore": explore}},
        )
        return self._ended(store, ended)

    def _ended(self, store: Store, ended: Ended) -> Document:
        document = document_of(store, ended.trial.header.id, final=ended.final)
        self.trials.append(document)
        if ended.signal is not None:
            raise _Cut(128 + ended.signal)
        if not document.valid:
            raise _Cut(EXIT_INVALID)
        return document

    def _taken_up(self, stored: StoredTrial, stage: Stage) -> Document:
        """Return a stored stage; one that was interrupted is completed first."""
        levels = stored.header.study.treatment_factors[0].levels
        if levels != stage.levels:
            raise RequestError(
                f"trial {stored.number} of this search compared other settings than the search would now",
                hint="today's settings have changed since; begin again without --resume",
            )
        self._before_s += stored.duration_s
        store = Store.open(store_path())
        if stored.state not in (TrialState.DONE, TrialState.INVALID):
            return self._ended(store, measure_more(store, store.data(stored.number), quiet=self._quiet))
        return self._ended(store, Ended(stored, stored.state))

    def _longer(self, document: Document, time_s: float) -> Document:
        """Run more blocks of the last stage."""
        store = Store.open(store_path())
        data = store.data(document.trial.number)
        spent_s = max((run.started_s for run in data.runs), default=0.0)
        blocks = int(str(document.trial.header.options["blocks"]))
        more = Continuation(now(), spent_s + time_s, blocks, no_stop=False)
        self.trials.pop()
        return self._ended(store, measure_more(store, data, further=more, quiet=self._quiet))

    def everything(self) -> Resolved:
        """Return, resolved, a study of every level that may be set: to show and to ask."""
        choices = self._space.choices() if self._space.size <= MOST_ARMS else self._space.single_changes()
        study = narrowed(self.study(race_stage(self._space, list(choices))), self._request)
        return resolve_study(study, self._request)

    def search(self) -> list[Choice]:
        """Search a large space; return the choices that looked best, for a race."""
        proposals = Proposals(self._space, int(self._seed[:8], 16))
        end = self.left_s * (1.0 - SEARCH_SHARE)
        proposed = 0
        while proposed < MOST_PROPOSED and not proposals.exhausted and self._searches_on(proposed, end):
            new = proposals.ask(NEW)
            if not new:
                break
            proposed += len(new)
            self._say(f"search: {proposed} of {self._space.size:,} combinations tried")
            stage = race_stage(self._space, [*proposals.best(AGAIN), *new])
            races = self.run(stage, self.left_s - end, explore=True).analysis.races
            if not races:
                break
            sign = races[0].sign
            failed = [stage.choices[p.arm] for p in races[0].places if p.left is Left.FAILS]
            proposals.leave_out(failed)
            effects = {stage.choices[p.arm]: sign * p.effect for p in races[0].places if p.effect is not None}
            proposals.tell({choice: effect for choice, effect in effects.items() if choice not in failed})
        return proposals.best(NEW + AGAIN)

    def _searches_on(self, proposed: int, end: float) -> bool:
        """Return whether there is a further round of the search: as before, if it is resumed; else while there is time."""
        stored = self._earlier.get(len(self.trials))
        if stored is not None:
            return bool(_stage_of(stored)["explore"])
        return proposed == 0 or self.left_s > end

    def _say(self, text: str) -> None:
        if not self._quiet:
            tell(text, err=True)

    def find(self) -> SearchResult:
        """Search if need be, race, confirm; return the outcome."""
        space = self._space
        choices = list(space.choices()) if space.size <= MOST_ARMS else self.search()
        stage = race_stage(space, choices)
        self._say(f"race: {len(stage.levels)} settings, today's among them")
        raced = self.run(stage, RACE_SHARE * self.left_s)
        race = next(iter(raced.analysis.races), None)
        label = None if race is None else candidate(raced.trial.header.study, race)
        if race is not None and label is None and not race.over and self.left_s > _LEAST_S:
            raced = self._longer(raced, self.left_s)
            race = next(iter(raced.analysis.races), None)
            label = None if race is None else recommended(raced.trial.header.study, race)
        if race is None or label is None:
            return SearchResult(space, None, tuple(self.trials), undecided=race is None or not race.over)
        header, winner = raced.trial.header, stage.choices[label]
        stage = with_margin_left(confirmation(space, winner), stage, race, spec_of(header), raced.data.blocks)
        self._say(f"confirmation on fresh blocks: {label}")
        several = len(space.changed(winner)) > 1
        self.run(stage, CONFIRM_SHARE * self.left_s if several else self.left_s)
        if several and not self._decided() and self.left_s > _LEAST_S:
            self._longer(self.trials[-1], self.left_s)
        result = self._confirmed(stage)
        fewer = None if result is None or not result.partial else result.contributing
        if fewer is not None and self.left_s > _LEAST_S:
            self._say(f"confirmation of what contributes: {space.label(fewer)}")
            stage = confirmation(space, fewer)
            self.run(stage, self.left_s)
            result = self._confirmed(stage)
        return SearchResult(space, result, tuple(self.trials), undecided=result is None)

    def _decided(self) -> bool:
        """Return whether the last stage shows whether the winner is better than today's settings."""
        whole, _ = confirming_effects(self.trials[-1].analysis.effects, TODAY)
        return whole is not None and not whole.conclusion.open

    def _confirmed(self, stage: Stage) -> Confirmed | None:
        document = self.trials[-1]
        study = document.trial.header.study
        measured = harm_seen(document.data)
        return confirmed(self._space, stage, study, document.analysis.effects, measured)


@click.command("best", cls=OwnCommand)
@click.argument("settings", nargs=-1, metavar="[STUDY | KNOB=LEVEL,LEVEL...]")
@compared(
    "--over",
    multiple=True,
    metavar="KNOB=LEVEL,LEVEL",
    help="The same as KNOB=LEVEL,LEVEL. With STUDY: the names of its factors (default: all).",
)
@own_command_options
@command_group("--workload", metavar="NAME", help="The workload of STUDY, if it has several.")
@command_group(
    "--condition",
    "conditions",
    multiple=True,
    metavar="NAME=LEVEL",
    help="The condition of STUDY to choose for, if it has several.",
)
@where(
    "--lab",
    metavar="KIND",
    help="Kind of lab of STUDY (directory, image, guest or in-place) or of a replay (in-place or image).",
)
@plan_option
@time_option("5 min")
@margin_option("5 %")
@level_and_seed
@no_controls_option
@sure(
    "--resume",
    is_flag=True,
    help="Go on with the last search of the same words in this folder that was interrupted.",
)
@page_option
@force_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, settings: tuple[str, ...], over: tuple[str, ...], as_json: bool, **values: Any
) -> int:
    """Which settings should I use for this work?

    All settings race in randomised blocks: one that cannot be the best is dropped. The winner is then compared with
    today's settings on fresh blocks, and each of its settings is left out once, to see whether it is needed. Today's
    settings win ties. Nothing is changed for good: `iotrial apply` does that.

    KNOB=LEVEL,LEVEL chooses among these levels and today's; "KNOB=LEVELS if KNOB=LEVEL": only with that level of the other
    knob; all: every setting of the disk, the mount and the machine that is worth a try.

      iotrial best block.scheduler=none,mq-deadline block.read_ahead_kb=128,4096 --cache cold -- grep -r x .

      iotrial best all --time 20m -- ./nightly-report.sh

      iotrial best all --time 20m --replay app.iotrace
    """
    after = ctx.meta.get(AFTER, ())
    over = (*(one for one in settings if "=" in one or one == ALL), *over)
    names = [one for one in settings if one not in over]
    study, further = (names[0], names[1:]) if names else (None, [])
    if further:
        raise RequestError(f"{further[0]} is neither a second study nor KNOB=LEVEL,LEVEL", hint=_EXAMPLE)
    refuse_unwritable(values["html"], force=values["force"])
    own = bool(after) or values["replay"] is not None
    if own is (study is not None):
        raise RequestError(
            "name a study, or a command after two dashes, or a trace with --replay"
            if not own
            else f"both a study ({study}) and a {'command' if after else 'replay'}",
            hint=_EXAMPLE,
        )
    quantity_of("--time", values["time"], parse_duration)
    quantity_of("--margin", values["margin"], parse_margin)
    base: Wish | Study
    if own:
        parameters = values["parameters"]
        base = wish_of((), after, {**values, "parameters": ()} if after else values)
        request = own_request(values)
        space = space_of_settings(
            over, parameters, str(Path(values["on"] or ".").resolve()), lab=base.lab, levels=values["levels"]
        )
    else:
        base, space, request = _of_study(str(study), over, own_request(values), values)
    key = _key_of([study, over, after], values)
    earlier = _stages(key) if values["resume"] else ()
    seed = str(_stage_of(earlier[0])["seed"]) if earlier else request.seed or new_seed()
    search = _Search(base, space, request, seed, quiet=as_json, key=key, earlier=earlier)
    if values["plan"]:
        return _plan(search, space, request)
    resolved = search.everything()
    seek_consent(resolved, default_folder(resolved, request.on), trust=request.trust, yes=request.yes)
    status = 0
    try:
        outcome = search.find()
    except _Cut as cut:
        outcome, status = SearchResult(space, None, tuple(search.trials), undecided=True), cut.status
    if status == 0 and outcome.trials and all(status_of(one, ()) == EXIT_NO_ANSWER for one in outcome.trials):
        status = EXIT_NO_ANSWER
    if values["html"] and outcome.trials:
        last = outcome.trials[-1]
        write_page(html_report(last), last, Path(values["html"]), force=values["force"])
    print_outcome(outcome, as_json=as_json)
    if status > _SIGNALLED and not as_json:
        tell("To go on: the same command with --resume.")
    return status


#: what does not make another search of it
_NOT_OF_THE_SEARCH = frozenset({"time", "seed", "resume", "plan", "html", "force", "yes"})


def _key_of(words: Sequence[object], values: dict[str, Any]) -> str:
    """Return a digest of what is searched, and where. The words themselves are in the trials already."""
    own = {name: value for name, value in values.items() if name not in _NOT_OF_THE_SEARCH}
    text = json.dumps([words, own, str(Path(values["on"] or ".").resolve())], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _stage_of(trial: StoredTrial) -> Mapping[str, Any]:
    """Return what a stored trial says of the search that it belongs to; empty if it belongs to none."""
    found = trial.header.options.get("best")
    return found if isinstance(found, Mapping) else {}


def _stages(key: str) -> tuple[StoredTrial, ...]:
    """Return the stages of the last search with this key, in order. Raises RequestError if there is none."""
    sound: tuple[StoredTrial, ...] = ()
    if store_path().exists():
        with Store.open(store_path()) as store:
            sound = tuple(one for one in store.listing()[0] if _stage_of(one).get("key") == key)
    if not sound:
        raise RequestError(
            "--resume: no search with the same words was begun in this folder",
            hint="repeat the words of the search; only --time may differ",
        )
    seed = _stage_of(sound[-1])["seed"]
    return tuple(one for one in sound if _stage_of(one)["seed"] == seed)


def _of_study(
    name: str, over: Sequence[str], request: RunRequest, values: dict[str, Any]
) -> tuple[Study, Space, RunRequest]:
    """Return a study with one workload under one condition, and the space of its factors."""
    study = find(name)
    conditions = dict(text.partition("=")[::2] for text in values["conditions"])
    if values["workload"]:
        conditions["workload"] = values["workload"]
    request = replace(
        request, lab=values["lab"], conditions={key: [value] for key, value in conditions.items()}
    )
    chosen = narrowed(study, replace(request, time=None))
    names = [factor.name for factor in study.treatment_factors]
    missing = [one for one in over if one not in names]
    if missing:
        message, hint = unknown("factor", missing[0], names, where=study.name)
        raise RequestError(message, hint=hint)
    several = [factor.name for factor in chosen.condition_factors if len(factor.levels) > 1]
    several += ["workload"] if len(chosen.workloads) > 1 else []
    if several:
        raise RequestError(
            f"study {study.name}: settings are chosen for one workload under one condition, but {several[0]} has several",
            hint=f"add --{'workload NAME' if several[0] == 'workload' else f'condition {several[0]}=LEVEL'}",
        )
    primary = next((r for r in chosen.responses if r.primary), None)
    if primary is None or primary.scale is not Scale.LOG:
        raise RequestError(
            f"study {study.name}: its first response is not compared by ratio, so no setting can win"
        )
    factors = [f for f in study.treatment_factors if not over or f.name in over]
    chosen = held(
        chosen, [f for f in chosen.treatment_factors if f.name not in {one.name for one in factors}]
    )
    return chosen, space_of_factors(factors, allowed=frozenset(over)), replace(request, conditions={})


def _plan(search: _Search, space: Space, request: RunRequest) -> int:
    for one in space.dimensions:
        today, *others = (level.label for level in one.levels)
        tell(f"{one.name}: today {today}; to choose from: {', '.join(others)}")
    for text in space.refused:
        tell(f"left out: {text}")
    how = "all race at once" if space.size <= MOST_ARMS else "a search proposes which of them to try"
    tell(f"{space.size:,} combinations: {how}; the winner is confirmed on fresh blocks")
    resolved = search.everything()
    for line in intent_lines(resolved, default_folder(resolved, request.on)):
        tell(line)
    return 0
