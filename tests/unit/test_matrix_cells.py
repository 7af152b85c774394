"""A matrix as conditions: its cells, what they share, their probe jobs, and which control covers which test."""

from __future__ import annotations

import pytest
from matrix_trials import conducted, text

from iotrial.design.plan import Plan
from iotrial.errors import RequestError, StudyError, UnsupportedLevel
from iotrial.lab import registry
from iotrial.runner.own_files import largest_own_file
from iotrial.runner.resolve import resolve
from iotrial.stats.analyse import Spec
from iotrial.stats.model import Verdict
from iotrial.study.catalogue import find
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Setting, Study
from iotrial.study.reader import read_study
from iotrial.study.select import select
from iotrial.study.work import JobContext
from iotrial.workloads.matrix import MatrixWork
from values import check_limits

SEED = "0" * 32
#: the columns of iozone's own table
IOZONE = (
    "write", "rewrite", "read", "reread", "random-read", "random-write", "backward-read", "record-rewrite", "stride-read",
    "fwrite", "frewrite", "fread", "freread",
)  # fmt: skip


def study(**changes: str) -> Study:
    return read_study(text(**changes), "own.toml", trusted=False)


def cells(plan: Plan) -> list[tuple[str, str]]:
    return [(c.levels["file_size"], c.levels["record_size"]) for c in plan.conditions]


def test_cells_whose_record_is_larger_than_their_file_are_left_out() -> None:
    assert cells(Plan(study(), SEED)) == [
        ("64 KiB", "4 KiB"), ("64 KiB", "64 KiB"),
        ("256 KiB", "4 KiB"), ("256 KiB", "64 KiB"),
        ("1 MiB", "4 KiB"), ("1 MiB", "64 KiB"), ("1 MiB", "512 KiB"),
    ]  # fmt: skip


def test_alpha_is_shared_by_all_cells_and_primary_tests() -> None:
    plan = Plan(study(), SEED)
    assert plan.primary_effects == 7 * 3
    spec = Spec.from_plan(plan)
    assert spec.primary_alpha == pytest.approx(0.05 / 21)
    # Two controls for each of them, at .001 in total.
    assert spec.control_alpha == pytest.approx(0.001 / 42)
    assert Plan(study(primary="read"), SEED).primary_effects == 7


def test_a_file_that_is_no_multiple_of_a_record_that_fits_is_refused() -> None:
    with pytest.raises(
        RequestError, match="a file of 1,048,576 bytes is not a multiple of its record of 98,304"
    ):
        Plan(study(records='["96 KiB"]', files='["64 KiB", "1 MiB"]'), SEED)
    with pytest.raises(RequestError, match="with direct a record is a multiple of 512 bytes, found 1,000"):
        Plan(study(records='["1000 B"]', files='["1 MB"]', extra="direct = true"), SEED)
    with pytest.raises(RequestError, match="no workload runs under any"):
        Plan(study(records='["2 MiB"]'), SEED)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tests": '["reed"]'}, 'no test is called "reed"'),
        ({"tests": '["read", "read"]'}, 'test "read" is given twice'),
        ({"extra": 'record_size = "8 MiB"'}, "a record of 8 MiB in a file of 4 MiB"),
        ({"extra": 'record_size = "3 KiB"'}, "not a multiple of its record of 3,072"),
        ({"extra": "stride = 0"}, "stride"),
        ({"extra": "files = 3"}, 'has no key "files"'),
    ],
)
def test_keys_that_cannot_work_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        study(**given)


def test_tests_stand_in_iozones_order_and_all_of_them_where_none_is_named() -> None:
    some = study(tests='["fread", "write", "read"]').workloads[0].work
    assert isinstance(some, MatrixWork)
    assert some.tests == ("write", "read", "fread")
    every = read_study(text().replace('tests = ["write", "read", "fread"]\n', ""), "own.toml", trusted=False)
    assert every.workloads[0].work.tests == IOZONE  # type: ignore[union-attr]


def test_a_matrix_survives_being_stored() -> None:
    declared = study(extra='direct = true\ncontent = "zeros"\nstride = 5')
    assert study_from_json(study_to_json(declared)) == declared
    check_limits(declared, origin="own.toml")


def test_the_job_is_asked_for_the_sizes_of_its_cell() -> None:
    work = study(extra="cold = true").workloads[0].work
    job = work.probe_job(JobContext(sizes={"file_size": 1 << 20, "record_size": 4096}))
    assert (job["file_size"], job["record_size"]) == (1 << 20, 4096)
    assert (job["cold"], job["direct"], job["stride"]) == (True, False, 17)
    plain = work.probe_job(JobContext())
    assert (plain["file_size"], plain["record_size"]) == (4 << 20, 65536)
    assert "stretch_of" not in plain, "every test is stretched"


def test_the_times_of_the_answer_become_responses_in_seconds() -> None:
    work = study().workloads[0].work
    answer = {"tests": {"write": {"wall_ns": 2_000_000}, "fread": {"wall_ns": 500}}}
    assert work.measured(answer, JobContext()).numbers == {"write_time": 2e-3, "fread_time": 5e-7}


@pytest.mark.parametrize("value", ["0 B", "7 B", "2 TiB", "64", "much"])
def test_a_size_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(UnsupportedLevel):
        registry.knob("matrix.file_size").parse(Setting("matrix.file_size", value))


def test_what_does_not_reach_the_jobs_own_file_is_refused() -> None:
    base = text(extra="").replace('knob = "mount.option"\nlevels = ["data=ordered", "data=journal"]', "{}")
    mode = base.replace("{}", 'knob = "file.mode"\nlevels = ["0600", "0644"]')
    with pytest.raises(RequestError, match=r"knob file\.mode: a matrix uses its own file"):
        resolve(read_study(mode, "own.toml", trusted=False), root=True)
    with pytest.raises(RequestError, match="its cache state cannot be prepared"):
        resolve(study(extra='cache = "warm"'), root=True)
    with pytest.raises(RequestError, match="a file of 2048 MiB in a lab of 512 MiB"):
        resolve(study(files='["1 MiB", "2 GiB"]'), root=True)
    assert largest_own_file(study(files='["1 MiB", "2 GiB"]')) == 2 << 30
    sizes = study().factor("file_size")
    permissions = find("files/permissions")
    with pytest.raises(RequestError, match=r"knob matrix\.file_size: no workload of kind matrix runs"):
        resolve(
            select(
                type(permissions)(
                    **{
                        **{f: getattr(permissions, f) for f in permissions.__slots__},
                        "factors": (*permissions.factors, sizes),
                    }
                )
            ),
            root=True,
        )


def test_the_shipped_study_has_six_cells_of_thirteen_tests() -> None:
    shipped = select(find("matrix/iozone"))
    plan = Plan(shipped, SEED)
    assert (len(plan.conditions), plan.primary_effects) == (6, 78)
    full = Plan(select(find("matrix/iozone"), full=True), SEED)
    # Files of 256 KiB to 256 MiB fit 4, 5, 6, 7, 7 and 7 of the seven record sizes; three workloads, on two
    # places.
    assert len(full.conditions) == 2 * 3 * (4 + 5 + 6 + 7 + 7 + 7)


def slow(treatment: str, test: str, file: int, record: int) -> float:
    """Return the time of a test. data=journal costs 30 % in write, nothing elsewhere."""
    return file * 1e-6 * (1.3 if (treatment, test) == ("data=journal", "write") else 1.0)


@pytest.mark.slow
def test_every_primary_test_of_every_cell_has_both_controls() -> None:
    document = conducted(text(), slow)
    found = {
        (c.kind, c.condition["file_size"], c.condition["record_size"], c.response)
        for c in document.analysis.controls
    }
    assert len(found) == 2 * 7 * 3
    assert all(c.passed for c in document.analysis.controls)
    positive = [c for c in document.analysis.controls if c.kind == "positive"]
    assert {c.injected for c in positive} == {1.1}
    assert all(c.low <= 1.1 <= c.high for c in positive if c.low and c.high)
    assert {e.verdict for e in document.analysis.effects if e.primary and e.response == "write_time"} == {
        Verdict.SLOWER
    }
    assert {e.verdict for e in document.analysis.effects if e.primary and e.response != "write_time"} == {
        Verdict.EQUIVALENT
    }


@pytest.mark.slow
def test_a_test_whose_own_slow_down_was_not_put_in_makes_the_trial_invalid() -> None:
    """The control of write does not cover that of read."""
    document = conducted(text(), slow, stretches="write")
    failed = {c.response for c in document.analysis.controls if not c.passed}
    assert failed == {"read_time", "fread_time"}
    assert not document.valid


def test_a_noisy_test_is_not_called_equivalent_by_the_control_of_a_quiet_one() -> None:
    document = conducted(text(primary="read write"), slow, blocks=12, sd=0.06)
    unseen = {
        (tuple(sorted(c.condition.items())), c.response)
        for c in document.analysis.controls
        if c.kind == "positive" and not c.told_from_zero
    }
    assert unseen, "too few blocks for some"
    for effect in document.analysis.effects:
        place = (tuple(sorted({**effect.condition, "workload": effect.workload}.items())), effect.response)
        if effect.primary and place in unseen:
            assert effect.verdict is not Verdict.EQUIVALENT
