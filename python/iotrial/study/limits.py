"""The limits of a study file, held against a study that came another way: as an object of ``codec``.

A study inside a packed trial or in somebody else's store was never read from TOML here. What the reader refuses
in a file (lengths, counts, names, control characters, work that cannot be) is refused here too, by the
same wire types; only what narrowing a study may leave behind (a placeholder without its workload) is let pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from iotrial.errors import StudyError
from iotrial.study import wire
from iotrial.study.design import DEFAULT_RESOLUTION, LARGEST_RESOLUTION, LEAST_RESOLUTION, MAX_REPEATS
from iotrial.study.factors import WORKLOAD, check_distinct_knobs
from iotrial.study.kinds import KeyProblem, kinds
from iotrial.study.kinds.varied import table_of
from iotrial.study.labels import fold
from iotrial.study.model import (
    TYPICAL,
    Claim,
    DesignKind,
    Factor,
    PlaceSpec,
    Response,
    Role,
    Scale,
    Setting,
    Study,
    Workload,
)
from iotrial.study.reader import MAX_BYTES, MAX_LINE
from iotrial.study.responses import nameable
from iotrial.study.source import Source
from iotrial.study.workloads import CACHE_STATES

MAX_SETTINGS = 64
MAX_LINE_NUMBER = 1 << 20
MAX_TREATMENT_PAIRS = wire.MAX_FACTORS * (wire.MAX_FACTORS - 1) // 2
_LABS = ("directory", "image", "device", "guest")


def check_limits(study: Study, *, origin: str) -> None:
    """Raises StudyError where a study file could not have said this. ``origin`` is what the error names."""
    check = _Check(origin)
    check.head(study)
    check.count("factors", study.factors, 1, wire.MAX_FACTORS)
    check.count("pinned knobs", study.fixed, 0, wire.MAX_FACTORS)
    check.count("workloads", study.workloads, 1, wire.MAX_WORKLOADS)
    check.count("claims", study.claims, 0, wire.MAX_CLAIMS)
    check.count("places", study.places, 0, wire.MAX_PLACES)
    check.distinct("places", [place.name for place in study.places])
    for place in study.places:
        check.place(place)
    check.distinct("factors", [factor.name for factor in study.factors])
    check.distinct("workloads", [workload.name for workload in study.workloads])
    for factor in study.factors:
        check.factor(factor)
    if not study.treatment_factors:
        raise check.error("no factor is a treatment")
    for setting in study.fixed:
        check.setting(setting)
    check_distinct_knobs(Source("", origin), study.factors, study.fixed)
    for workload in study.workloads:
        check.workload(workload, study)
    check.responses(study)
    check.design(study)
    for claim in study.claims:
        check.claim(claim, study)


class _Check:
    def __init__(self, origin: str) -> None:
        self._origin = origin

    def error(self, message: str) -> StudyError:
        return StudyError(message, file=self._origin)

    def fits(self, kind: str, value: object, what: str) -> None:
        """The value as the wire type of this name takes it."""
        try:
            _adapter(kind).validate_python(value)
        except ValidationError as error:
            raise self.error(f"{what}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None

    def within(self, value: float, low: float, high: float, what: str) -> None:
        if not low <= value <= high:  # a NaN lies nowhere
            raise self.error(f"{what}: wanted {low:g} to {high:g}, found {wire.shown(value)}")

    def place(self, place: PlaceSpec) -> None:
        where = f"place {wire.shown(place.name)}"
        self.fits("PlaceName", place.name, where)
        self.fits("Line", place.text, f"{where}: text")
        if place.kind not in (None, "directory", "image", "device"):
            raise self.error(f"{where}: kind {wire.shown(place.kind)}")
        if place.size_bytes is not None:
            self.within(place.size_bytes, 1 << 20, 16 << 40, f"{where}: size")
        if place.filesystem is not None:
            self.fits("Name", place.filesystem, f"{where}: file system")

    def count(self, what: str, found: Sequence[object], least: int, most: int) -> None:
        if not least <= len(found) <= most:
            raise self.error(f"wanted {least} to {most} {what}, found {len(found)}")

    def distinct(self, what: str, names: Iterable[str]) -> None:
        names = list(names)
        if len(set(names)) < len(names):
            raise self.error(f"two {what} have one name")

    def head(self, study: Study) -> None:
        self.fits("StudyName", study.name, "study's name")
        self.fits("Line", study.title, "title")
        self.fits("Line", study.question, "question")
        self.fits("Prose", study.why, "why")
        self.fits("Line", study.origin[:500], "origin")
        self.within(len(study.origin), 0, 4096, "length of the origin")
        self.within(study.margin, 1e-12, 1, "margin")
        self.within(study.alpha, 1e-12, 0.5, "alpha")
        self._text(study.text)
        lab = study.lab
        if lab.kind is not None and lab.kind not in _LABS:
            raise self.error("the kind of lab is not known")
        self.fits("Name", lab.filesystem, "file system")
        self.within(lab.size_bytes, 1 << 20, 16 << 40, "size of the lab")
        for options in (lab.mkfs_options, lab.mount_options):
            self.count("options of the lab", options, 0, 64)
            for option in options:
                self.fits("Line", option, "option of the lab")
        self.within(study.budget.time_s, 1e-9, 30 * 86400, "time of the budget")
        self.within(study.budget.blocks, 1, 1_000_000, "blocks of the budget")

    def _text(self, text: str) -> None:
        if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
            raise self.error("the study's text is larger than 1 MiB")
        for line in text.split("\n"):
            if len(line) > MAX_LINE:
                raise self.error(f"a line of the study's text has more than {MAX_LINE} characters")
        try:
            wire.prose(text)
        except ValueError as error:
            raise self.error(f"the study's text {error}") from None

    def factor(self, factor: Factor) -> None:
        what = f"factor {wire.shown(factor.name)}"
        self.fits("Name", factor.name, what)
        if factor.name == WORKLOAD:
            raise self.error('"workload" cannot be the name of a factor')
        labels = [level.label for level in factor.levels]
        self.count(f"levels of {what}", labels, 2 if factor.role is Role.TREATMENT else 1, wire.MAX_LEVELS)
        self.distinct(f"levels of {what}", map(fold, labels))
        for level in factor.levels:
            self.fits("Label", level.label, f"label of {what}")
            self.count(f"settings of a level of {what}", level.settings, 1, MAX_SETTINGS)
            for setting in level.settings:
                self.setting(setting)
        if factor.reference not in labels:
            raise self.error(f"{what}: its reference is none of its levels")
        self.distinct(f"defaults of {what}", factor.default)
        if not factor.default or not set(factor.default) <= set(labels):
            raise self.error(f"{what}: its defaults are not among its levels")
        if factor.line is not None:
            self.within(factor.line, 1, MAX_LINE_NUMBER, f"line of {what}")

    def setting(self, setting: Setting) -> None:
        self.fits("KnobName", setting.knob, "knob")
        self.fits("Scalar", setting.value, f"value of {setting.knob}")
        self.distinct("options of a knob", [name for name, _ in setting.options])
        for name, value in setting.options:
            if name not in wire.KnobOptions.model_fields:
                raise self.error(f"knob {setting.knob}: no option is called {wire.shown(name)}")
            self.fits("Line", value, f"option {name} of {setting.knob}")

    def workload(self, workload: Workload, study: Study) -> None:
        what = f"workload {wire.shown(workload.name)}"
        self.fits("Name", workload.name, what)
        if workload.kind not in kinds():
            raise self.error(f"{what}: no kind of workload is called {wire.shown(workload.kind)}")
        if workload.cache is not None and workload.cache not in CACHE_STATES:
            raise self.error(f"{what}: no cache state is called {wire.shown(workload.cache)}")
        kind = kinds()[workload.kind]
        try:
            built = kind.build(kind.keys.model_validate(table_of(workload.work)))
        except KeyProblem as problem:
            raise self.error(f"{what}: {problem.message}") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise self.error(f"{what}: {wire.shown(place)[1:-1]}: {message}") from None
        if built != workload.work:
            raise self.error(f"{what}: no study file could declare this work")
        labels = {factor.name: {level.label for level in factor.levels} for factor in study.condition_factors}
        for name, wanted in workload.only.items():
            if name not in labels or not wanted or not set(wanted) <= labels[name]:
                raise self.error(f"{what}: restricted to levels of {wire.shown(name)} that are not there")

    def responses(self, study: Study) -> None:
        specs = {
            (workload.name, spec.name): spec
            for workload in study.workloads
            for spec in nameable(kinds()[workload.kind].responses(workload.work))
        }
        self.distinct("responses", [f"{r.workload}\0{r.name}" for r in study.responses])
        for response in study.responses:
            spec = specs.get((response.workload, response.name))
            if spec is None or spec.unit != response.unit or spec.stretchable != response.stretchable:
                raise self.error(
                    f"workload {wire.shown(response.workload)} measures no {wire.shown(response.name)} "
                    f"in {wire.shown(response.unit)}"
                )
            if response.statistic != TYPICAL:
                self.statistic(response, study)
        for workload in study.workloads:
            if not any(r.primary for r in study.responses if r.workload == workload.name):
                raise self.error(f"workload {workload.name}: no response is primary")

    def statistic(self, response: Response, study: Study) -> None:
        try:
            wire.ResponseTable.model_validate(
                {"name": response.name, "statistic": response.statistic, "cap": response.cap}
            )
        except ValidationError as error:
            raise self.error(f"a response: {error.errors()[0]['msg']}") from None
        timed = response.unit == "s" and response.scale is Scale.LOG
        if not (timed and response.primary and study.design.kind is DesignKind.FULL):
            raise self.error(
                f"no study file could ask for the {response.statistic} of {wire.shown(response.name)}"
            )

    def design(self, study: Study) -> None:
        design, names = study.design, [factor.name for factor in study.treatment_factors]
        self.within(design.resolution, LEAST_RESOLUTION, LARGEST_RESOLUTION, "resolution")
        self.within(design.repeats, 1, MAX_REPEATS, "repeats")
        if design.resolution != DEFAULT_RESOLUTION and design.kind is not DesignKind.FRACTIONAL:
            raise self.error("only a fractional design has a choice of resolution")
        if design.fold_over and design.kind not in (DesignKind.FRACTIONAL, DesignKind.PLACKETT_BURMAN):
            raise self.error("only a fractional or Plackett-Burman design can be folded over")
        if design.repeats > 1 and not any(factor.whole_plot for factor in study.treatment_factors):
            raise self.error("repeats without a whole-plot factor")
        if any(factor.whole_plot for factor in study.condition_factors):
            raise self.error("a condition has no plot")
        self.count("interactions", design.interactions, 0, MAX_TREATMENT_PAIRS)
        self.distinct("interactions", ["\0".join(pair) for pair in design.interactions])
        for first, second in design.interactions:
            if first not in names or second not in names or names.index(first) >= names.index(second):
                raise self.error("an interaction of factors that are not there, or not in their order")

    def claim(self, claim: Claim, study: Study) -> None:
        treatments = {f.name: {level.label for level in f.levels} for f in study.treatment_factors}
        if not {claim.level, claim.reference} <= treatments.get(claim.factor, set()):
            raise self.error("a claim speaks of levels that are not there")
        fields = {field.name: getattr(claim, field.name) for field in dataclasses.fields(claim)}
        try:
            needs = {name: list(words) for name, words in claim.needs.items()}
            wire.ClaimTable.model_validate({**fields, "condition": dict(claim.condition), "needs": needs})
            for name in claim.condition:
                self.fits("Name", name, "condition of a claim")
        except ValidationError as error:
            raise self.error(f"a claim: {error.errors()[0]['msg']}") from None


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(getattr(wire, kind))
