"""Effects of settings on data safety: every knob has a class, and every view of a faster level shows it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest
from report_fixtures import CONDITIONS, document, effect, study

import program
from iotrial.cli.planned_changes import intent_lines
from iotrial.knobs.declaration import Safety, consequence_of
from iotrial.knobs.sysctl import Sysctl
from iotrial.lab import registry
from iotrial.lab.knobs.mount import MountOption
from iotrial.report.analysed import analysed
from iotrial.report.comparing import compare
from iotrial.report.comparison import cell_verdict, details
from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.safety import every_level
from iotrial.report.sentences import Tone
from iotrial.report.text import Console
from iotrial.runner.resolve import resolve
from iotrial.stats.model import Effect, Verdict
from iotrial.study import catalogue
from iotrial.study.model import Factor, Level, Role, Setting, Study
from values import replace

ROOT = Path(__file__).parents[2]
ONE = CONDITIONS[0]
HARMLESS, TRADE_OFF, AT_RISK, NOT_JUDGED = Safety

# -- every knob


@pytest.mark.parametrize("name", sorted(registry.knobs()))
def test_every_knob_has_a_class_and_a_sentence(name: str) -> None:
    knob = registry.knob(name)
    for one in (knob.consequence, *knob.consequences.values()):
        assert isinstance(one.safety, Safety)
        assert one.sentence.strip() == one.sentence
        assert len(one.sentence) > 10
        assert not one.sentence.endswith(".")
        assert one.sentence[0].islower() or one.sentence.startswith("iotrial")


@pytest.mark.parametrize("option", sorted(MountOption.ALLOWED))
def test_every_mount_option_that_can_be_turned_is_judged(option: str) -> None:
    found = {key for key in MountOption.consequences if key.partition("=")[0] == option}
    assert found, f"{option} is on the list of options and has no consequence"


def test_no_consequence_is_declared_for_an_option_that_there_is_not() -> None:
    known = {key.partition("=")[0] for key in MountOption.consequences}
    assert known - {"default"} == set(MountOption.ALLOWED)
    assert set(Sysctl.consequences) <= set(Sysctl.ALLOWED)


# -- according to the documentation of kernel, file systems, NFS and databases

ABOUT = "option"
#: knob, value, option; class
TRUTH: list[tuple[str, str, tuple[tuple[str, str], ...], Safety]] = [
    # Documentation/admin-guide/ext4.rst: barriers make volatile write caches safe to use
    ("mount.option", "nobarrier", (), AT_RISK),
    ("mount.option", "barrier=0", ((ABOUT, "barrier"),), AT_RISK),
    ("mount.option", "barrier", (), HARMLESS),
    ("mount.option", "barrier=1", (), HARMLESS),
    ("mount.option", "default", ((ABOUT, "barrier"),), HARMLESS),
    # the same: crash and recovery can cause incorrect data in files that were written shortly before
    ("mount.option", "data=writeback", (), AT_RISK),
    ("mount.option", "data=ordered", (), HARMLESS),
    ("mount.option", "data=journal", (), TRADE_OFF),
    # the same: at most the last N seconds (commit=N) are lost, the file system is not damaged
    ("mount.option", "commit=1", (), TRADE_OFF),
    ("mount.option", "commit=600", (), TRADE_OFF),
    # the same: the zero-length problem
    ("mount.option", "noauto_da_alloc", (), AT_RISK),
    ("mount.option", "auto_da_alloc", (), HARMLESS),
    # ext4 refuses it with data=ordered, whose guarantee it breaks
    ("mount.option", "journal_async_commit", (), AT_RISK),
    ("mount.option", "journal_checksum", (), HARMLESS),
    ("mount.option", "nojournal_checksum", (), AT_RISK),
    ("mount.option", "delalloc", (), HARMLESS),
    ("mount.option", "nodelalloc", (), HARMLESS),
    # mount(8): timestamps are written after 24 hours at the latest
    ("mount.option", "lazytime", (), TRADE_OFF),
    ("mount.atime", "lazytime", (), TRADE_OFF),
    ("mount.atime", "noatime", (), HARMLESS),
    ("mount.option", "sync", (), TRADE_OFF),
    ("mount.option", "async", (), HARMLESS),
    # btrfs(5): potential partial writes in case of a crash; no checksums
    ("mount.option", "nodatacow", (), AT_RISK),
    ("mount.option", "nodatasum", (), AT_RISK),
    ("mount.option", "datacow", (), HARMLESS),
    ("mount.option", "compress=zstd:3", (), TRADE_OFF),
    ("mount.option", "logbsize=256k", (), TRADE_OFF),
    ("mount.option", "some_new_option", (), NOT_JUDGED),
    # ext4(5), mke2fs(8)
    ("mkfs.option", "-O ^has_journal", (), AT_RISK),
    ("mkfs.option", "-O ^dir_index,^has_journal", (), AT_RISK),
    ("mkfs.option", "-O  ^has_journal", (), AT_RISK),
    ("mkfs.option", "-O has_journal", (), HARMLESS),
    ("mkfs.option", "-O ^metadata_csum", (), AT_RISK),
    ("mkfs.option", "-O ^dir_index", (), HARMLESS),
    ("mkfs.option", "-O some_new_feature", (), NOT_JUDGED),
    ("mkfs.option", "-J size=8", (), TRADE_OFF),
    ("mkfs.option", "-b 1024", (), HARMLESS),
    ("mkfs.option", "-m 0", (), TRADE_OFF),
    ("mkfs.option", "-E lazy_itable_init=1", (), TRADE_OFF),
    ("mkfs.option", "-E stride=16", (), HARMLESS),
    ("mkfs.option", "-E num_backup_sb=0", (), AT_RISK),
    ("mkfs.option", "default", (), HARMLESS),
    # mkfs.xfs(8), mkfs.btrfs(8)
    ("mkfs.option", "-m crc=0", (), AT_RISK),
    ("mkfs.option", "-m reflink=0", (), HARMLESS),
    ("mkfs.option", "-l size=64m", (), HARMLESS),
    ("mkfs.option", "-m single", (), AT_RISK),
    ("mkfs.option", "-m dup", (), HARMLESS),
    # exports(5): an unclean restart of the server can cause data to be lost or corrupted
    ("nas.export", "async", (), AT_RISK),
    ("nas.export", "sync", (), HARMLESS),
    ("nas.protocol", "nfs4", (), HARMLESS),
    ("nas.protocol", "smb", (), TRADE_OFF),
    ("nas.protocol", "ftp", (), TRADE_OFF),
    # Documentation/ABI/stable/sysfs-block: eliminates cache flushes issued by the kernel
    ("block.write_cache", "write through", (), AT_RISK),
    ("block.write_cache", "write back", (), HARMLESS),
    ("block.scheduler", "bfq", (), TRADE_OFF),
    ("block.read_ahead_kb", "4096", (), TRADE_OFF),
    ("block.nomerges", "2", (), HARMLESS),
    # Documentation/admin-guide/pm/cpufreq.rst
    ("cpu.governor", "performance", (), TRADE_OFF),
    # Documentation/admin-guide/sysctl/vm.rst
    ("sysctl", "40", (("key", "vm.dirty_ratio"),), TRADE_OFF),
    ("sysctl", "6000", (("key", "vm.dirty_expire_centisecs"),), TRADE_OFF),
    ("sysctl", "5", (("key", "vm.laptop_mode"),), TRADE_OFF),
    ("sysctl", "60", (("key", "vm.swappiness"),), TRADE_OFF),
    ("sysctl", "10", (("key", "vm.stat_interval"),), HARMLESS),
    # Documentation/admin-guide/mm/hugetlbpage.rst: pages in the pool cannot be used for other purposes
    ("sysctl", "64", (("key", "vm.nr_hugepages"),), TRADE_OFF),
    ("guest.sysctl", "1", (("key", "net.ipv4.tcp_sack"),), HARMLESS),
    ("guest.sysctl", "4096", (("key", "vm.min_free_kbytes"),), TRADE_OFF),
    # cryptsetup-luksFormat(8), --sector-size
    ("block.encryption", "none", (), HARMLESS),
    ("block.encryption", "aes-xts-plain64 no_read_workqueue", (), TRADE_OFF),
    ("block.encryption", "aes-xts-plain64 sector_size:4096", (), TRADE_OFF),
    # md(4), Documentation/driver-api/md/raid5-ppl.rst: the write hole
    ("raid.level", "raid0", (), AT_RISK),
    ("raid.level", "raid1", (), HARMLESS),
    ("raid.level", "raid10", (), HARMLESS),
    ("raid.level", "raid5", (), TRADE_OFF),
    ("raid.bitmap", "none", (), TRADE_OFF),
    ("raid.bitmap", "internal", (), HARMLESS),
    ("raid.state", "degraded", (), AT_RISK),
    ("raid.state", "whole", (), HARMLESS),
    ("raid.stripe_cache", "8192", (), TRADE_OFF),
    # the manuals of SQLite (PRAGMA synchronous), MariaDB and PostgreSQL (synchronous_commit)
    ("work.option", "false", ((ABOUT, "durable"),), AT_RISK),
    ("work.option", "true", ((ABOUT, "durable"),), HARMLESS),
    ("work.option", "no-fsync", ((ABOUT, "commit"),), AT_RISK),
    ("work.option", "1 MiB", ((ABOUT, "block_size"),), HARMLESS),
    ("work.option", "many", ((ABOUT, "some_new_key"),), NOT_JUDGED),
    # chattr(1)
    ("file.attribute", "sync", (), TRADE_OFF),
    ("file.attribute", "none", (), HARMLESS),
    ("file.mode", "0777", (), TRADE_OFF),
    ("file.mode", "0644", (), HARMLESS),
    # what cannot be known
    ("command.argument", "--unsafe", (("placeholder", "{how}"),), NOT_JUDGED),
    ("environment.variable", "1", (("variable", "TURBO"),), NOT_JUDGED),
    ("program.path", "/opt/fast", (), NOT_JUDGED),
    ("kernel.version", "6.12", (), NOT_JUDGED),
    # qemu-system-x86_64(1), -drive cache=
    ("guest.disk_cache", "none", (), HARMLESS),
    ("guest.disk_cache", "directsync", (), HARMLESS),
    ("guest.disk_cache", "writethrough", (), HARMLESS),
    ("guest.disk_cache", "writeback", (), TRADE_OFF),
    ("guest.disk_cache", "unsafe", (), AT_RISK),
    ("guest.disk_interface", "sata", (), HARMLESS),
    ("guest.disk_aio", "native", (), HARMLESS),
    ("guest.disk_format", "raw", (), HARMLESS),
    ("guest.disk_format", "raw preallocation=off", (), TRADE_OFF),
    ("guest.disk_format", "qcow2", (), TRADE_OFF),
    ("guest.disk_format", "qcow2 preallocation=full", (), HARMLESS),
    ("guest.disk_format", "qcow2 lazy_refcounts=on preallocation=full", (), TRADE_OFF),
    # hw/nvme/ctrl.c of QEMU: no FUA
    ("guest.disk_interface", "nvme", (), AT_RISK),
    ("lab.device", "fast", (), NOT_JUDGED),
    ("some.knob", "1", (), NOT_JUDGED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("knob", "value", "options", "safety"), TRUTH, ids=[f"{row[0]} {row[1]}" for row in TRUTH]
)
def test_the_class_of_a_value_is_that_of_its_documentation(
    knob: str, value: str, options: tuple[tuple[str, str], ...], safety: Safety
) -> None:
    assert consequence_of(Setting(knob, value, options)).safety is safety


def test_a_bundle_is_as_dangerous_as_the_gravest_of_its_settings() -> None:
    of = mounted(Level("tuned", (Setting("mount.atime", "noatime"), Setting("mount.option", "nobarrier"))))
    (found,) = [one for one in every_level(of) if one.level == "tuned"]
    assert found.safety is AT_RISK
    assert "flushed" in found.sentence


def test_what_every_run_has_is_judged_as_well() -> None:
    of = catalogue.find("mount/atime")
    risky = replace(of, lab=replace(of.lab, mount_options=("nobarrier",)))
    assert not [one for one in every_level(of) if one.at_risk]
    (found,) = [one for one in every_level(risky) if one.at_risk]
    assert "nobarrier" in found.name


# -- in reports


def mounted(level: Level | None = None) -> Study:
    risky = level or Level("off", (Setting("mount.option", "nobarrier"),))
    safe = Level("on", (Setting("mount.option", "barrier"),))
    return study(
        treatment=Factor("mode", Role.TREATMENT, (safe, risky), "on", ("on", risky.label)), conditions=()
    )


def document_of(verdict: Verdict, value: float, *, level: str = "off", reference: str = "on") -> Document:
    found = effect(verdict, value, value * 0.98, value * 1.02, level=level, reference=reference)
    return document([found], of=mounted(), runs={"conditions": [{}]}, control=())


def test_a_headline_that_praises_a_dangerous_level_warns_in_one_short_sentence() -> None:
    made = document_of(Verdict.FASTER, 0.6)
    found = made.summary
    assert found.headline.endswith(" (without controls). Caution: the faster mode off puts data at risk.")
    assert "power cut" in " ".join(line for _, line in made.safety)
    assert found.tone is Tone.AT_RISK


def test_a_dangerous_reference_that_is_faster_is_named_too() -> None:
    of = mounted()
    turned = replace(of, factors=(replace(of.factors[0], reference="off"),))
    found = document(
        [effect(Verdict.SLOWER, 1.6, 1.5, 1.7, level="on", reference="off")],
        of=turned,
        runs={"conditions": [{}]},
        control=(),
    )
    assert "mode off puts data at risk" in found.summary.headline
    assert found.summary.tone is Tone.AT_RISK


@pytest.mark.parametrize("verdict", [Verdict.SLOWER, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE])
def test_a_dangerous_level_that_is_not_faster_leaves_the_headline_as_it_was(verdict: Verdict) -> None:
    found = document_of(verdict, 1.1).summary
    assert "at risk" not in found.headline
    assert found.tone is not Tone.AT_RISK


def test_a_harmless_level_that_is_faster_is_praised_as_before() -> None:
    found = document([effect(Verdict.FASTER, 0.6, 0.5, 0.7, condition=ONE)])
    assert found.summary.tone is Tone.FASTER
    assert "at risk" not in found.summary.headline


def test_two_levels_of_the_same_danger_are_compared_without_a_warning() -> None:
    of = mounted()
    levels = (
        Level("a", (Setting("mount.option", "nobarrier"),)),
        Level("b", (Setting("mount.option", "barrier=0"),)),
    )
    same = replace(of, factors=(replace(of.factors[0], levels=levels, reference="a"),))
    found = document(
        [effect(Verdict.FASTER, 0.6, 0.5, 0.7, level="b", reference="a")],
        of=same,
        runs={"conditions": [{}]},
        control=(),
    )
    assert "at risk" not in found.summary.headline


def printed(of: Document) -> str:
    out = io.StringIO()
    print_report(of, Console(file=out, width=200, color_system="standard", force_terminal=True))
    return out.getvalue()


def test_the_mark_stands_in_every_format_and_is_not_green() -> None:
    found = document_of(Verdict.FASTER, 0.6)
    text = printed(found)
    (row,) = [line for line in text.splitlines() if "ratio" not in line and "0.60 [" in line]
    assert "data at risk" in row
    assert "\x1b[32m" not in row
    assert "Data at risk" in text
    assert "⚠ data at risk" in markdown_report(found)
    page = html_report(found)
    assert 'class="badge risk"' in page
    assert 'class="badge faster"' not in page
    assert 'class="badge data at risk"' in page


def test_the_json_report_holds_class_and_consequence_of_level_and_reference() -> None:
    body = json.loads(json.dumps(report_json(document_of(Verdict.FASTER, 0.6))))
    jsonschema.validate(body, json.loads((ROOT / "schemas/report.schema.json").read_text()))
    (one,) = body["effects"]
    assert one["level_safety"]["class"] == "data at risk"
    assert one["reference_safety"]["class"] == "harmless"
    assert one["verdict"] == "faster"
    assert {(row["level"], row["class"]) for row in body["trial"]["safety"]} == {
        ("on", "harmless"),
        ("off", "data at risk"),
    }


def test_an_interaction_has_no_level_of_its_own() -> None:
    crossed = effect(
        Verdict.FASTER,
        0.6,
        0.5,
        0.7,
        level="off:b",
        reference="on:a",
        kind="interaction",
        factor="mode:other",
    )
    body = report_json(document([effect(Verdict.SLOWER, 1.2, 1.1, 1.3, level="off", reference="on"), crossed],
                                of=mounted(), runs={"conditions": [{}]}, control=()))  # fmt: skip
    found = {one["kind"]: one["level_safety"] for one in body["effects"]}  # type: ignore[attr-defined]
    assert found["interaction"] is None
    assert found["main"] is not None


def test_trials_side_by_side_bear_the_mark() -> None:
    def one(identity: str, found: Effect) -> Document:
        made = document([found], of=mounted(), runs={"conditions": [{}]}, control=())
        header = replace(made.trial.header, id=identity)
        return replace(made, data=replace(made.data, trial=replace(made.trial, header=header)))

    found = effect(Verdict.FASTER, 0.6, 0.5, 0.7, level="off", reference="on")
    both = [analysed(one(name, found), share=2) for name in ("a", "b")]
    side_by_side = compare(both)
    (cell, _) = side_by_side.rows[0].cells
    assert cell is not None
    assert "data at risk" in cell_verdict(cell)
    assert any("Data at risk under mode off" in detail for detail in details(side_by_side))


# -- before a run, and in lists


def test_a_plan_says_what_each_level_may_cost() -> None:
    resolved = resolve(catalogue.find("system/screen-follow-up"), root=True, lab="image")
    (line,) = [
        line for line in intent_lines(resolved, "/x") if "nobarrier" in line and "data at risk" in line
    ]
    assert "power cut" in line


def test_lists_of_knobs_and_studies_show_the_class(state: Path) -> None:
    knobs = json.loads(program.iotrial("knobs", "--json").stdout)
    jsonschema.validate(knobs, json.loads((ROOT / "schemas/knobs.schema.json").read_text()))
    export = next(one for one in knobs["knobs"] if one["name"] == "nas.export")
    assert export["safety"] == "harmless"
    assert export["safety_by_value"]["async"]["class"] == "data at risk"
    assert "data at risk at async" in program.iotrial("knobs", "--all").stdout
    studies = json.loads(program.iotrial("list", "--json").stdout)["studies"]
    classes = {one["name"]: one["safety"] for one in studies}
    assert classes["nas/nfs"] == "data at risk"
    assert classes["mount/atime"] != "data at risk"
    shown = program.iotrial("show", "nas/nfs").stdout
    assert "data at risk: export async" in shown


@pytest.mark.slow
def test_a_trial_that_was_packed_before_knobs_said_it_says_it() -> None:
    done = program.iotrial("report", str(ROOT / "docs/catalogue/system/screen.iotrial"), "--json")
    body = json.loads(done.stdout)
    jsonschema.validate(body, json.loads((ROOT / "schemas/report.schema.json").read_text()))
    assert "data at risk" in body["trial"]["verdict"]
    (one,) = [e for e in body["effects"] if e["factor"] == "barrier" and e["primary"]]
    assert one["verdict"] == "faster"
    assert one["level_safety"]["class"] == "data at risk"
