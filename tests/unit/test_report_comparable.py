"""Claims are judged only by trials of the same thing: over the catalogue's packed trials, and fact by fact."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from report_fixtures import CONDITIONS, document, effect, study
from rich.console import Console

from iotrial.report.claims import HeldClaim, Outcome, Setup, claims_of, disks, hold_claims, modelled
from iotrial.report.conditions import Conditions
from iotrial.report.document import OTHER_CLAIMS, Document
from iotrial.report.opening import packed_document
from iotrial.report.render import print_report
from iotrial.runner.same_disk import Machine, hardware_of, kind_of_disk
from iotrial.stats.model import Effect, Verdict
from iotrial.study import catalogue
from iotrial.study.model import Claim, LinkSpec, Role
from iotrial.workloads.database import DatabaseWork
from values import replace

CATALOGUE = Path(__file__).resolve().parents[2] / "docs" / "catalogue"
RENAMED = {"noop": "none", "deadline": "mq-deadline"}
CLAIM = Claim("", "", "mode", "0444", "0777", 0.89)
SLOWER = effect(Verdict.SLOWER, 1.2, 1.1, 1.3, condition=CONDITIONS[0])
ON_ONE_DISK = {"places": ["lab", "log"], "disks": ["vda"], "compared": False, "log": "log"}


@cache
def packed(name: str) -> Document:
    return packed_document(CATALOGUE / f"{name}.iotrial")


def about(name: str, text: str) -> HeldClaim:
    """Return the one claim of a packed trial whose text contains ``text``."""
    (one,) = (held for held in packed(name).claims if text in held.claim.text)
    return one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "nas/smb",
            "25 MB/s reading by SMB",
            "the claim is about 1 Gbit/s, and the network here has 100 Mbit/s",
        ),
        ("filesystem/xfs-external-log", "28 % more throughput", "here lab and log lie on one disk (vda)"),
        ("filesystem/xfs-external-log-turning", "28 % more throughput", "averages over 0 % and 99 %"),
        ("block/device", "counting all rows", "no work here is a count in a database"),
        ("block/device", "inserting some 2,490 rows", "no work here is an insert into a database"),
        ("block/position", "At 58 %", "the claim is about the rebuild of a mirror"),
        ("block/position", "At 98 %", "at 99 % and not at 98 %"),
        ("block/model", "12.8 ms", "the disks here are made of these figures"),
        ("application/database", "22.07 s", "the claim is about the engine mysql, and here it is sqlite"),
        ("application/database-memory", "a tenth", "this study varies transparent ones"),
        ("application/compile", "with cfq", "bfq is another algorithm"),
        ("application/compress", "111.76 s with cfq", "bfq is another algorithm"),
        ("filesystem/fragmentation", "than one that is 5 %", "the claim is about a rotating disk"),
    ],
)
def test_a_trial_of_something_else_says_that_it_cannot_say(name: str, text: str, why: str) -> None:
    one = about(name, text)
    assert one.outcome is Outcome.CANNOT_SAY
    assert why in one.why
    assert (one.ratio, one.low, one.high) == (None, None, None)  # no number that invites a comparison


def test_without_what_it_needs_the_claim_of_fragmentation_is_larger_than_what_is_found() -> None:
    made = packed("filesystem/fragmentation")
    claim = replace(about("filesystem/fragmentation", "than one that is 5 %").claim, needs={})
    (one,) = hold_claims((claim,), made.analysis.effects, made.conditions, margin=made.trial.header.margin)
    assert (round(one.low or 0, 2), round(one.high or 0, 2)) == (1.37, 1.44)
    assert one.outcome is Outcome.SMALLER  # claimed are 1 / 0.63


@pytest.mark.parametrize("name", ["application/compile", "application/compress"])
def test_works_of_real_life_cite_their_own_figures_and_not_those_of_raw_reads(name: str) -> None:
    claims = catalogue.find(name).claims
    assert claims
    assert not [claim.source for claim in claims if "hdparm" in claim.source]


def test_no_claim_of_an_algorithm_that_is_gone_is_judged_by_another() -> None:
    for name in catalogue.names():
        for claim in catalogue.find(name).claims:
            if "bfq" in (claim.level, claim.reference):
                assert "bfq is another algorithm" in claim.cannot, (name, claim.text)
            for gone, renamed in RENAMED.items():
                if f"with {gone}" in claim.text and not claim.cannot:
                    assert renamed in (claim.level, claim.reference), (name, claim.text)


def test_claims_of_servers_and_engines_that_are_not_here_are_not_judged() -> None:
    for name in catalogue.names():
        for claim in catalogue.find(name).claims:
            if "MySQL" in claim.source and (claim.ratio or claim.says):
                engines = claim.needs.get("engine")
                judged = engines == ("mysql",) or (
                    engines == ("mysql", "mariadb") and "MariaDB" in claim.scale
                )
                assert claim.cannot or judged, (name, claim.text)


def test_a_packed_trial_is_judged_by_the_claims_that_its_study_has_now() -> None:
    made = packed("application/database-memory")
    stored = made.trial.header.study.claims
    (now,) = (held.claim for held in made.claims)
    assert now in catalogue.find("application/database-memory").claims
    assert now not in stored
    assert OTHER_CLAIMS in made.summary.details


def test_a_study_that_means_something_else_by_now_keeps_its_own_claims() -> None:
    shipped = catalogue.find("nas/smb")
    ours = (replace(CLAIM, factor="protocol", level="smb", reference="nfs3"),)
    factor = shipped.factor("protocol")
    level = factor.levels[1]
    renamed = replace(factor, levels=(factor.levels[0], replace(level, label="cifs")))
    other = replace(level, settings=(replace(level.settings[0], value="nfs4"),))
    turned = replace(factor, levels=(factor.levels[0], other))
    faster = replace(shipped.lab, link=LinkSpec())
    for changed in (renamed, turned):
        factors = tuple(changed if one is factor else one for one in shipped.factors)
        assert claims_of(replace(shipped, factors=factors, claims=ours)) == (ours, False)
    assert claims_of(replace(shipped, origin="mine.toml", claims=ours)) == (ours, False)
    assert claims_of(replace(shipped, lab=faster, claims=ours)) == (shipped.claims, True)
    assert claims_of(shipped) == (shipped.claims, False)


def test_a_claim_in_other_words_is_the_same_claim() -> None:
    shipped = catalogue.find("nas/smb")
    first, *rest = shipped.claims
    reworded = replace(first, source="a user", text="faster", note="one run")
    assert claims_of(replace(shipped, claims=(reworded, *rest))) == (shipped.claims, False)
    resized = replace(first, ratio=(first.ratio or 1) * 2)
    assert claims_of(replace(shipped, claims=(resized, *rest))) == (shipped.claims, True)


def test_the_terminal_prints_the_claim_in_its_own_words() -> None:
    console = Console(width=2000, record=True, file=io.StringIO())  # wider than any sentence
    print_report(packed("nas/smb"), console, full=True)
    (line,) = (one for one in console.export_text().splitlines() if one.startswith("Claim"))
    assert line.startswith("Claim  A published table")
    assert "“25 MB/s reading by SMB, 43.7 and 44.8 by NFS, both at 1 Gbit/s”: cannot say" in line


def held(claim: Claim, lab: Mapping[str, object], *effects: Effect, virtual: bool = False) -> HeldClaim:
    (one,) = hold_claims(
        (claim,),
        effects or (SLOWER,),
        Conditions(study()),
        margin=0.03,
        setup=Setup(study(), lab, {"virtual": virtual}),
    )
    return one


@pytest.mark.parametrize(
    ("lab", "virtual", "judged", "why"),
    [
        ({"places": [{"place": "ext4"}], "disks": {"lab": {"sda": "rotating"}}}, False, True, ""),
        (
            {"places": [{"place": "ext4"}], "disks": {"lab": {"sda": "solid-state"}}},
            False,
            False,
            "a solid-state disk",
        ),
        (
            {"places": [{"place": "ext4"}], "disks": {"lab": {"sda": "rotating", "sdb": "solid-state"}}},
            False,
            False,
            "a solid",
        ),
        ({"places": [{"place": "ext4"}], "disks": {"lab": {"sda": None}}}, False, False, "did not record"),
        ({"places": [{"place": "ext4"}]}, False, False, "did not record"),
        ({}, False, False, "did not record"),
        (
            {"places": [{"place": "ext4"}], "disks": {"lab": {"vda": "rotating"}}},
            True,
            False,
            "a virtual machine's disk",
        ),
        ({"places": [{"place": "ext4", "modelled": "disk-7200: turns_per_minute 7200"}]}, False, True, ""),
        (
            {"places": [{"place": "ext4", "modelled": "ssd-sata: queue 32"}]},
            False,
            False,
            "a solid-state disk",
        ),
        ({"places": [{"place": "ext4", "modelled": "drum: 1"}]}, False, False, "did not record"),
        (
            {"places": [{"place": "ext4", "kind": "guest"}], "disks": {"lab": {"sda": "rotating"}}},
            False,
            False,
            "a virtual",
        ),
    ],
)
def test_only_a_disk_that_is_known_to_turn_judges_a_claim_of_one(
    lab: Mapping[str, object], virtual: bool, judged: bool, why: str
) -> None:
    one = held(replace(CLAIM, needs={"disk": ("rotating",)}), lab, virtual=virtual)
    assert (one.outcome is Outcome.CONTRADICTED) is judged
    assert why in one.why
    assert one.modelled is (judged and "modelled" in str(lab))
    assert ("on a modelled disk" in one.sentence) is one.modelled


@pytest.mark.parametrize(
    ("needed", "disk", "judged"),
    [
        ("nvme", "nvme", True),
        ("solid-state", "nvme", True),
        ("nvme", "solid-state", False),
        ("rotating", "nvme", False),
    ],
)
def test_an_nvme_disk_is_solid_state_and_another_is_no_nvme(needed: str, disk: str, judged: bool) -> None:
    lab = {"places": [{"place": "ext4"}], "disks": {"lab": {"x": disk}}}
    one = held(replace(CLAIM, needs={"disk": (needed,)}), lab)
    assert (one.outcome is Outcome.CONTRADICTED) is judged
    modelled = {"places": [{"place": "ext4", "modelled": "ssd-sata: queue 32"}]}
    assert "about an NVMe disk" in held(replace(CLAIM, needs={"disk": ("nvme",)}), modelled).why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "outcome", "why"),
    [
        ("application/configure", "136.12 s", Outcome.CANNOT_SAY, "the work here is a tree of 12 sources"),
        ("application/archive", "442.32 s", Outcome.CANNOT_SAY, "the work here is 1/128 of the size"),
        ("application/configure", "93.18 s", Outcome.CONFIRMED, "no size is compared"),
        ("application/database-cold", "52.24 s", Outcome.CONFIRMED, "a small table under MariaDB"),
        ("mount/read-calls", "202 times", Outcome.CONFIRMED, "within the 2 that differ"),
        ("filesystem/record-pattern", "for access by 512", Outcome.NOT_CONFIRMED, "excluded here"),
        ("raid/mirror-readers", "105 in all", Outcome.CANNOT_SAY, "process number"),
        ("mount/commit", "a longer commit", Outcome.CANNOT_SAY, "never acts here"),
    ],
)
def test_a_claim_of_a_packed_trial_has_this_outcome(name: str, text: str, outcome: Outcome, why: str) -> None:
    one = about(name, text)
    assert one.outcome is outcome
    assert why in one.why


def test_disks_are_those_of_the_places_that_are_compared() -> None:
    lab = {
        "places": [{"place": "own.xfs"}, {"place": "flat", "modelled": "ssd-sata"}],
        "disks": {"own": {"sda": "rotating"}},
    }
    setup = Setup(study(), lab)
    assert disks(setup, ("own",)) == ("rotating",)
    assert disks(setup, ("flat",)) == ("solid-state",)
    assert disks(setup) == ("rotating", "solid-state")
    assert (modelled(setup), modelled(setup, ("own",)), modelled(setup, ("flat",))) == (True, False, True)


@pytest.mark.parametrize(
    ("lab", "judged"),
    [
        ({"places": [{"place": "xfs", "log": {"device": "loop1"}}], "shared": [ON_ONE_DISK]}, False),
        ({"places": [{"place": "xfs", "log": {"device": "loop1"}}]}, True),
        ({"places": [{"place": "xfs"}]}, False),
        ({}, False),
    ],
)
def test_devices_on_one_disk_are_not_separate(lab: Mapping[str, object], judged: bool) -> None:
    one = held(replace(CLAIM, needs={"devices": ("separate",)}), lab)
    assert (one.outcome is Outcome.CONTRADICTED) is judged


def test_an_emulated_processor_is_not_a_real_one() -> None:
    claim = replace(CLAIM, needs={"processor": ("real",)})
    assert held(claim, {"guest": {"accelerator": "tcg"}}).outcome is Outcome.CANNOT_SAY
    assert held(claim, {"guest": {"accelerator": "kvm"}}).outcome is Outcome.CONTRADICTED
    assert held(claim, {}).outcome is Outcome.CONTRADICTED


def test_the_rate_of_the_network_and_the_engine_are_the_studys_own() -> None:
    shipped = catalogue.find("nas/smb")
    found = replace(
        SLOWER,
        factor="protocol",
        level="smb",
        reference="nfs3",
        workload="read",
        condition={"rate": "1 Gbit/s"},
    )
    claim = Claim("", "", "protocol", "smb", "nfs3", 0.8, needs={"rate": ("1 Gbit/s",)})
    for rate, outcome in (("1 Gbit/s", Outcome.CONTRADICTED), ("100 Mbit/s", Outcome.CANNOT_SAY)):
        here = replace(found, condition={"rate": rate})
        (one,) = hold_claims((claim,), [here], Conditions(shipped), margin=0.03, setup=Setup(shipped))
        assert one.outcome is outcome, rate
    databases = catalogue.find("application/database")
    (workload, *_) = databases.workloads
    assert isinstance(workload.work, DatabaseWork)
    counted = replace(
        SLOWER, factor="start", level="after a start", reference="second time", workload="count", condition={}
    )
    claim = Claim("", "", "start", "after a start", "second time", 0.8)
    for engine, outcome in (("sqlite", Outcome.CONTRADICTED), ("mysql", Outcome.CANNOT_SAY)):
        needing = replace(claim, needs={"engine": (engine,)})
        (one,) = hold_claims(
            (needing,), [counted], Conditions(databases), margin=0.03, setup=Setup(databases)
        )
        assert one.outcome is outcome, engine


def test_a_claim_under_a_level_of_another_treatment_is_not_judged_by_the_mean_over_its_levels() -> None:
    shipped = catalogue.find("filesystem/xfs-external-log")
    assert shipped.factor("fragmentation").role is Role.TREATMENT
    claim = Claim("", "", "log", "external", "internal", 0.78, condition={"fragmentation": "99 %"})
    found = replace(
        SLOWER, factor="log", level="external", reference="internal", workload="rewrite", condition={}
    )
    (one,) = hold_claims((claim,), [found], Conditions(shipped), margin=0.03, setup=Setup(shipped))
    assert one.outcome is Outcome.CANNOT_SAY
    assert "fragmentation 99 %" in one.why


def test_claims_of_what_did_not_run_take_one_line_in_brief() -> None:
    claims = [replace(CLAIM, text=str(i), condition={"cache": "frozen"}) for i in range(3)]
    made = document([SLOWER], of=study(claims=claims))
    assert len(made.claims) == 3
    assert {one.outcome for one in made.claims} == {Outcome.CANNOT_SAY}
    assert all(one.not_run for one in made.claims)


def test_the_kernel_says_whether_a_disk_turns(tmp_path: Path) -> None:
    for disk, text in (("sda", "1\n"), ("nvme0n1", "0\n"), ("odd", "what")):
        queue = tmp_path / "block" / disk / "queue"
        queue.mkdir(parents=True)
        (queue / "rotational").write_text(text)
    machine = Machine(sys=tmp_path)
    found = [kind_of_disk(disk, machine) for disk in ("sda", "nvme0n1", "odd", "0:42")]
    assert found == ["rotating", "nvme", None, None]


def test_model_and_firmware_of_a_disk_are_those_that_the_kernel_has_and_no_serial_number(
    tmp_path: Path,
) -> None:
    files = {
        "nvme0n1": {"model": "Some  NVMe \n", "firmware_rev": "2B2QEXE7\n", "serial": "S123"},
        "sda": {"model": "DISK", "rev": "CC43\n", "wwid": "naa.5000"},
        "mmcblk0": {"name": "SD32G", "fwrev": "0x1"},
        "vda": {"vendor": "0x1af4"},
    }
    for disk, contents in files.items():
        folder = tmp_path / "block" / disk / "device"
        folder.mkdir(parents=True)
        for name, text in contents.items():
            (folder / name).write_text(text)
    found = {disk: hardware_of(disk, Machine(sys=tmp_path)) for disk in (*files, "0:42")}
    assert found == {
        "nvme0n1": {"model": "Some NVMe", "firmware": "2B2QEXE7"},
        "sda": {"model": "DISK", "firmware": "CC43"},
        "mmcblk0": {"model": "SD32G", "firmware": "0x1"},
        "vda": {},
        "0:42": {},
    }
