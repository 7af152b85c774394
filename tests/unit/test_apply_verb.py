"""The verbs apply, keep, applied and revert on a tree that looks like a machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from accounts import with_evidence
from click.testing import CliRunner, Result
from machine_trees import THP, Crash, FakeMachine, image, tree
from report_fixtures import document, effect, study
from test_applied import record_of

from generators.schemas import schema_text
from iotrial.cli import consent, pending_restore
from iotrial.cli.verbs import applied, apply, keep, revert
from iotrial.errors import IotrialError, RequestError
from iotrial.report.document import Document
from iotrial.stats.model import Effect, Verdict
from iotrial.study.model import Factor, Level, Role, Setting
from iotrial.tune.applied import Records
from iotrial.tune.applied import apply as apply_record
from iotrial.tune.choice import Choice, chosen, selected
from values import replace


def factor(name: str, knob: str, *values: str, **options: str) -> Factor:
    levels = tuple(Level(value, (Setting(knob, value, tuple(options.items())),)) for value in values)
    return Factor(name, Role.TREATMENT, levels, values[0], values)


BARRIER = ("--in", "/data", "--only", "mount.option barrier")  # it puts data at risk
FACTORS = (
    factor("swappiness", "sysctl", "60", "10", key="vm.swappiness"),
    factor("ahead", "block.read_ahead_kb", "128", "1024"),
    factor("pages", "memory.huge_pages", "madvise", "never"),
    factor("option", "mount.option", "default", "nobarrier", option="barrier"),
    factor("nice", "process.nice", "0", "5"),
)


def trial(*better: str, **changes: Any) -> Document:
    """Return a trial in which these factors are faster, and the others equivalent."""
    effects: list[Effect] = []
    for one in FACTORS:
        numbers = (0.8, 0.75, 0.85) if one.name in better else (1.0, 0.99, 1.01)
        verdict = Verdict.FASTER if one.name in better else Verdict.EQUIVALENT
        effects.append(
            effect(
                verdict, *numbers, factor=one.name, level=one.levels[1].label, reference=one.levels[0].label
            )
        )
    made = document(
        effects,
        of=replace(study(treatment=FACTORS[0], conditions=()), factors=FACTORS),
        runs={"conditions": ({},)},
    )
    header = replace(made.trial.header, **changes)
    return replace(made, data=replace(made.data, trial=replace(made.trial, header=header)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree(tmp_path / "machine")


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a verb on the tree; ``of`` is the trial that is stored."""

    def verb(
        name: str, *words: str, of: Document | None = None, fails: bool = False, e_value: float = 1e12
    ) -> Result:
        monkeypatch.setattr(apply, "document_at", lambda _: of)
        monkeypatch.setattr(apply, "account_here", lambda: with_evidence(of, e_value))
        command = {"apply": apply, "keep": keep, "revert": revert, "applied": applied}[name].command
        done = CliRunner(env={"IOTRIAL_ROOT": str(root)}).invoke(command, words, standalone_mode=False)
        if done.exception is not None and not fails:
            raise done.exception
        return done

    return verb


def refused(run: Any, *words: str, of: Document | None = None) -> IotrialError:
    error = run(*words, of=of, fails=True).exception
    assert isinstance(error, IotrialError), error
    return error


def test_apply_shows_sets_and_waits_and_keep_and_revert_end_it(run: Any, root: Path) -> None:
    before = image(root)
    of = trial("swappiness", "ahead")
    shown = run("apply", "--in", "/data/x", "--yes", of=of).output
    for part in (
        "+vm.swappiness = 10", "/proc/sys/vm/swappiness: 60 -> 10", "trade-off", "20 % less time", "iotrial keep",
        '+ACTION=="add|change"', "10 min",
    ):  # fmt: skip
        assert part in shown
    assert (root / "proc/sys/vm/swappiness").read_text() == "10"
    assert "waits for `iotrial keep`" in run("applied").output
    assert "Kept: vm.swappiness = 10, block.read_ahead_kb = 1024" in run("keep").output
    told = run("applied").output
    assert "kept since" in told
    assert "all of it is in force" in told
    run("revert")
    assert image(root) == before
    assert "Nothing is applied" in run("applied").output
    assert "Nothing is applied" in run("revert").output


def test_a_dry_run_changes_nothing(run: Any, root: Path) -> None:
    before = image(root)
    assert "+vm.swappiness = 10" in run("apply", "--dry-run", of=trial("swappiness")).output
    assert image(root) == before
    assert not (root / "var/lib/iotrial").exists()


def test_without_consent_nothing_is_changed(run: Any, root: Path) -> None:
    before = image(root)
    assert "nothing was changed" in refused(run, "apply", of=trial("swappiness")).message
    assert image(root) == before


def test_what_is_beyond_the_account_is_applied_only_by_name(run: Any, root: Path) -> None:
    of = trial("swappiness")
    before = image(root)
    error = run("apply", "--yes", of=of, e_value=3.0, fails=True).exception
    assert isinstance(error, RequestError)
    assert "beyond the account of errors" in error.message
    assert "`iotrial continue 1 --no-stop --blocks" in error.message
    assert "--only vm.swappiness" in error.message
    assert image(root) == before
    done = run("apply", "--only", "vm.swappiness", "--yes", of=of, e_value=3.0)
    assert (
        "beyond the account of errors: its e-value is 3, and the account needs" in done.output + done.stderr
    )
    assert (root / "proc/sys/vm/swappiness").read_text() == "10"


def test_a_trial_that_asked_nothing_here_is_beyond_the_account(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trial("swappiness", id="e15e" * 8)
    before = image(root)
    other = with_evidence(trial("swappiness", id="07e4" * 8))
    monkeypatch.setattr("test_apply_verb.with_evidence", lambda *_: other)
    error = run("apply", "--yes", of=of, fails=True).exception
    assert "its trial asked nothing on this machine" in str(error)
    assert image(root) == before


def test_files_can_be_written_elsewhere(run: Any, root: Path, tmp_path: Path) -> None:
    before = image(root)
    run("apply", "--output", str(tmp_path / "out"), of=trial("swappiness", "pages"))
    written = {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert written == {"etc/sysctl.d/99-zz-iotrial-t0001.conf", "etc/tmpfiles.d/00-iotrial-t0001.conf"}
    assert image(root) == before


def test_a_playbook_for_ansible_has_files_handlers_and_a_variable_for_the_disk(
    run: Any, tmp_path: Path
) -> None:
    (play,) = yaml.safe_load(
        run("apply", "--ansible", "--in", "/data", of=trial("swappiness", "ahead")).output
    )
    written = [task for task in play["tasks"] if "ansible.builtin.copy" in task]
    assert not any(
        "iotrial revert" in task["ansible.builtin.copy"]["content"] for task in written
    )  # it knows nothing of it
    copied = {
        task["ansible.builtin.copy"]["dest"]: task["ansible.builtin.copy"]["content"] for task in written
    }
    sysctl, udev = "/etc/sysctl.d/99-zz-iotrial-t0001.conf", "/etc/udev/rules.d/99-zz-iotrial-t0001.rules"
    assert set(copied) == {sysctl, udev}
    assert "vm.swappiness = 10\n" in copied[sysctl]
    handlers = {one["name"]: one["ansible.builtin.command"]["argv"] for one in play["handlers"]}
    assert ["sysctl", "-p", sysctl] in handlers.values()
    assert all(set(task["notify"]) == set(handlers) for task in written)
    assert not any("ansible.builtin.command" in task for task in play["tasks"])
    # with its variables put in, the rule is the one that `apply` writes, and one disk only is triggered
    run("apply", "--output", str(tmp_path / "out"), "--in", "/data", of=trial("swappiness", "ahead"))
    names = {name: value for name, value in play["vars"].items() if name.startswith("iotrial_disk_")}
    assert len(names) == 1
    ((name, value),) = names.items()
    assert f"{{{{ {name} }}}}" in copied[udev]
    assert copied[udev].replace(f"{{{{ {name} }}}}", value) == (tmp_path / f"out{udev}").read_text()
    (trigger,) = [argv for argv in handlers.values() if argv[:2] == ["udevadm", "trigger"]]
    assert trigger[-1].endswith(f"{{{{ {name} }}}}")
    assert "-match=" in trigger[-1]


def test_user_data_for_cloud_init_has_the_files_that_apply_writes(run: Any, tmp_path: Path) -> None:
    better = trial("swappiness", "ahead", "pages")
    printed = run("apply", "--print", "cloud-init", "--in", "/data", of=better).output
    assert printed.startswith("#cloud-config\n")
    data = yaml.safe_load(printed)
    run("apply", "--output", str(tmp_path / "out"), "--in", "/data", of=better)
    written = {f"/{one.relative_to(tmp_path / 'out')}" for one in (tmp_path / "out").rglob("*.*s")}
    written |= {f"/{one.relative_to(tmp_path / 'out')}" for one in (tmp_path / "out").rglob("*.conf")}
    assert {one["path"] for one in data["write_files"]} == written
    for one in data["write_files"]:
        assert one["content"] == (tmp_path / f"out{one['path']}").read_text()
    assert ["sysctl", "-p", "/etc/sysctl.d/99-zz-iotrial-t0001.conf"] in data["runcmd"]
    (trigger,) = [argv for argv in data["runcmd"] if argv[:2] == ["udevadm", "trigger"]]
    assert "{{" not in trigger[-1]
    if (cloud_init := shutil.which("cloud-init")) is not None:
        (tmp_path / "user-data").write_text(printed)
        argv = [cloud_init, "schema", "--config-file", str(tmp_path / "user-data")]
        checked = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_line_of_fstab_is_no_user_data(run: Any) -> None:
    with pytest.raises(RequestError, match="fstab"):
        run("apply", "--print", "cloud-init", *BARRIER, of=trial("option"))


def test_a_module_of_nixos_sets_what_apply_sets(run: Any, tmp_path: Path) -> None:
    printed = run(
        "apply", "--print", "nixos", "--in", "/data", of=trial("swappiness", "ahead", "pages")
    ).output
    assert '"vm.swappiness" = "10";' in printed
    assert '"w /sys/kernel/mm/transparent_hugepage/enabled - - - - never"' in printed
    if (nix := shutil.which("nix-instantiate")) is None:
        pytest.skip("needs nix-instantiate")
    (tmp_path / "module.nix").write_text(printed)
    argv = [nix, "--eval", "--strict", "--json", str(tmp_path / "module.nix")]
    done = subprocess.run(
        argv, env={**os.environ, "NIX_STATE_DIR": str(tmp_path), "NIX_STORE_DIR": str(tmp_path / "store")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    module = json.loads(done.stdout)
    run("apply", "--output", str(tmp_path / "out"), "--in", "/data", of=trial("swappiness", "ahead", "pages"))
    rules = (tmp_path / "out/etc/udev/rules.d/99-zz-iotrial-t0001.rules").read_text()
    assert module["services"]["udev"]["extraRules"] == rules
    assert module["boot"]["kernel"]["sysctl"] == {"vm.swappiness": "10"}


def test_mount_options_become_those_of_a_file_system_of_nixos(run: Any) -> None:
    printed = run("apply", "--print", "nixos", *BARRIER, of=trial("option")).output
    assert 'fileSystems."/data".options = [ "nobarrier" ];' in printed


def test_what_puts_data_at_risk_is_applied_only_by_name(run: Any, root: Path) -> None:
    error = refused(run, "apply", "--in", "/data", "--yes", of=trial("option"))
    assert "data at risk" in str(error.hint)
    shown = run("apply", "--in", "/data", "--only", "mount.option", "--dry-run", of=trial("option")).output
    assert "defaults,nosuid,nobarrier" in shown
    assert "[data at risk: " in shown


def test_a_setting_without_a_place_is_left_out_and_said_or_refused_if_named(run: Any) -> None:
    assert (
        "not applied: nice 5: process.nice=5 cannot be kept"
        in run("apply", "--dry-run", of=trial("swappiness", "nice")).output
    )
    assert "cannot be kept" in refused(run, "apply", "--dry-run", of=trial("nice")).message
    assert (
        "cannot be kept"
        in refused(run, "apply", "--dry-run", "--only", "nice", of=trial("swappiness", "nice")).message
    )


def test_a_trial_that_found_nothing_changes_nothing(run: Any, root: Path) -> None:
    before = image(root)
    error = refused(run, "apply", "--yes", of=trial())
    assert "no setting to apply" in error.message
    assert "equivalent" in str(error.hint)
    assert image(root) == before


def test_a_second_apply_of_the_same_or_while_one_waits_is_refused(run: Any, root: Path) -> None:
    of = trial("swappiness")
    run("apply", "--yes", of=of)
    assert "waits to be kept" in refused(run, "apply", "--yes", of=of).message
    run("keep")
    seen = image(root)
    assert "is applied since" in refused(run, "apply", "--yes", of=of).message
    other = trial("swappiness", id="u-0002")
    assert "already applied from trial t0001" in refused(run, "apply", "--yes", of=other).message
    assert image(root) == seen
    run("apply", "--yes", of=trial("pages", id="u-0002"))
    run("keep")
    before_both = run("applied").output
    assert "t0001" in before_both
    assert "u0002" in before_both
    run("revert", "t-0001")
    assert (root / "proc/sys/vm/swappiness").read_text() == "60"
    assert (root / THP).read_text() == "never"


def test_after_a_reboot_what_was_not_kept_is_taken_back(run: Any, root: Path) -> None:
    before = image(root)
    run("apply", "--yes", of=trial("swappiness"))
    assert "Nothing is applied" in run("revert", "--unkept").output  # not due yet
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-2")
    assert "started again before" in refused(run, "keep").message
    run("revert", "--unkept")
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-1")
    assert image(root) == before
    assert "was taken back: the machine was started again" in run("applied").output
    assert "started again before it was kept" in str(refused(run, "keep").hint)


def test_what_was_kept_is_not_taken_back_at_boot(run: Any, root: Path) -> None:
    run("apply", "--yes", of=trial("swappiness"))
    run("keep")
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-2")
    assert "Nothing is applied" in run("revert", "--unkept").output
    assert (root / "etc/sysctl.d/99-zz-iotrial-t0001.conf").exists()


def test_drift_rivals_and_another_kernel_are_named(run: Any, root: Path) -> None:
    run("apply", "--yes", of=trial("swappiness"))
    run("keep")
    (root / "proc/sys/vm/swappiness").write_text("33")
    (root / "etc/sysctl.d/99-zzz.conf").write_text("vm.swappiness = 33\n")
    (root / "proc/sys/kernel/osrelease").write_text("6.12.0")
    told = run("applied").output
    assert 'drifted: /proc/sys/vm/swappiness: reads "33", not "10"' in told
    assert "overridden: /etc/sysctl.d/99-zzz.conf:1 also sets it to 33, and wins" in told
    assert "kernel then 6.1.0, now 6.12.0" in told


def test_applied_fails_on_request_if_a_setting_is_gone(run: Any, root: Path) -> None:
    run("apply", "--yes", of=trial("swappiness"))
    run("keep")
    assert run("applied", "--fail-if", "gone").return_value == 0
    (root / "proc/sys/vm/swappiness").write_text("33")
    assert run("applied").return_value == 0
    assert run("applied", "--fail-if", "gone").return_value == 4


def test_evidence_from_another_machine_is_said(run: Any, root: Path) -> None:
    (root / "proc/cpuinfo").write_text("processor: 0\nmodel name\t: This CPU\n")
    of = trial("swappiness", host={"kernel": "5.10", "processor": "Other CPU", "system": "Debian 11"})
    text = run("apply", "--dry-run", of=of)
    assert "from another machine (processors differ): Other CPU, Debian 11, kernel 5.10" in text.stderr


def test_the_evidence_is_measured_again_and_compared(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trial(
        "swappiness",
        lab={"kind": "in-place", "places": [{"mounted_at": "/data"}]},
        options={
            "argv": [
                "iotrial", "try", "vm.swappiness=60,10", "--seed", "4", "--html=x", "--time", "5s", "--yes", "--", "work",
                "--json",
            ],
            "folder": "/data/x", "controls": True,
        },
        study=replace(trial().trial.header.study, trusted=True),
    )  # fmt: skip
    run("apply", "--yes", of=of)
    run("keep")
    assert "CANNOT" not in run("applied").output
    seen: list[list[str]] = []

    class Done:
        returncode = 0
        stdout = ""

    def again(argv: list[str], **_: Any) -> Done:
        seen.append(argv[3:])
        one = {
            "kind": "main", "factor": "swappiness", "level": "10", "reference": "60", "response": "wall",
            "conclusion": "equivalent", "ratio": 1.0, "low": 0.99, "high": 1.01,
        }  # fmt: skip
        found = Done()
        found.stdout = json.dumps({"effects": [one]})
        return found

    monkeypatch.setattr("iotrial.tune.evidence.subprocess.run", again)
    told = run("applied", "--check").output
    assert seen == [
        [
            "try",
            "vm.swappiness=60,10",
            "--time",
            "5s",
            "--in",
            "/data/x",
            "--yes",
            "--json",
            "--",
            "work",
            "--json",
        ]
    ]
    assert "vm.swappiness = 10: NO LONGER HOLDS" in told
    assert "equivalent 1 [0.99, 1.01]" in told


def test_json_documents_fit_their_schemas(run: Any) -> None:
    for name, words in (
        ("apply", ["--yes", "--in", "/data"]), ("applied", []), ("keep", []), ("revert", []),
    ):  # fmt: skip
        found = json.loads(run(name, *words, "--json", of=trial("swappiness", "ahead")).output)
        jsonschema.validate(found, json.loads(schema_text(name)))


@pytest.mark.parametrize("within", ["1s", "2 days", "x"])
def test_a_time_that_makes_no_sense_is_refused(run: Any, within: str) -> None:
    assert isinstance(refused(run, "apply", "--within", within, of=trial("swappiness")), RequestError)


def test_unknown_names_of_applied_trials_are_refused(run: Any) -> None:
    run("apply", "--yes", of=trial("swappiness"))
    assert 'no trial "zz" is applied' in refused(run, "revert", "zz").message


def test_settings_that_change_while_apply_asks_stop_it(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_question: str) -> bool:
        (root / "proc/sys/vm/swappiness").write_text("33")
        return True

    monkeypatch.setattr(consent, "confirmed", meanwhile)
    assert "have changed meanwhile" in refused(run, "apply", of=trial("swappiness")).message
    assert (root / "proc/sys/vm/swappiness").read_text() == "33"


def test_a_command_mentions_what_was_not_kept_in_time(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("apply", "--yes", of=trial("swappiness"))
    monkeypatch.setattr(pending_restore, "_APPLIED", root / "var/lib/iotrial/applied")
    monkeypatch.setattr(
        "iotrial.tune.machine.Machine.__init__", lambda self, _=None: setattr(self, "root", root)
    )
    pending_restore.mention_overdue()
    assert capsys.readouterr().err == ""
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-2")
    pending_restore.mention_overdue()
    assert "trial t0001 were not kept in time; run `iotrial revert`" in capsys.readouterr().err


@pytest.mark.parametrize(("last", "settled"), [("keep", True), ("revert", True), ("apply", False)])
def test_a_record_that_waits_for_nothing_costs_other_commands_nothing(
    run: Any, root: Path, last: str, settled: bool
) -> None:
    run("apply", "--yes", of=trial("swappiness"))
    if last != "apply":
        run(last)
    records = list((root / "var/lib/iotrial/applied").glob("*.json"))
    assert records
    assert [pending_restore._is_settled(path) for path in records] == [settled] * len(records)
    records[0].write_text("{")
    assert not pending_restore._is_settled(records[0])


def test_an_apply_that_was_cut_off_is_taken_back_before_the_next_one(run: Any, root: Path) -> None:
    before = image(root)
    of = trial("swappiness")
    choices = selected(chosen(of), ()).choices
    for step in (8, 12, 16):
        with pytest.raises(Crash):
            cut_off(FakeMachine(root, crash_at=step), choices)
        shown = run("apply", "--yes", of=of)
        assert "had been cut off" in shown.stderr
        assert "/proc/sys/vm/swappiness: 60 -> 10" in shown.output
        run("revert")
        assert image(root) == before


def cut_off(machine: FakeMachine, choices: tuple[Choice, ...]) -> None:
    apply_record(Records(machine), record_of(machine, choices), lambda _: None)


def test_verbs_take_what_they_can_beside_a_record_that_cannot_be_read(run: Any, root: Path) -> None:
    before = image(root)
    run("apply", "--yes", of=trial("swappiness"))
    spoiled = root / "var/lib/iotrial/applied/ffffffff.json"
    spoiled.write_text("{")
    spoiled.chmod(0o600)
    assert "ffffffff.json" in json.loads(run("applied", "--json").stdout)["unreadable"][0]
    assert "t0001" in run("applied").output
    kept = run("keep")
    assert "ffffffff.json" in kept.stderr
    assert "Kept: " in kept.output
    assert "ffffffff.json" in refused(run, "apply", "--yes", of=trial("pages")).message
    assert "ffffffff.json" in refused(run, "revert").message
    assert image(root) == before
    assert spoiled.exists()
    refused(run, "revert", "--force", "ffffffff")
    assert [path.name for path in spoiled.parent.glob("ffffffff*")] == ["ffffffff.unreadable"]
    assert "Nothing is applied" in run("revert").output


def test_the_timer_logs_what_it_does_and_what_it_cannot_read(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = image(root)
    monkeypatch.setattr(revert, "_PATIENT_S", 0.5)
    run("apply", "--yes", of=trial("swappiness"))
    spoiled = root / "var/lib/iotrial/applied/ffffffff.json"
    spoiled.mkdir(mode=0o700)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-2")
    refused(run, "revert", "--unkept")
    assert image(root) == {
        **before,
        "proc/sys/kernel/random/boot_id": image(root)["proc/sys/kernel/random/boot_id"],
    }
    taken_back, unreadable = (root / "var/lib/iotrial/watchdog.log").read_text().splitlines()
    assert "trial t0001: not kept in time; 2 as before" in taken_back
    assert "trial ffffffff: nothing taken back" in unreadable
    assert "expected a file, found a folder" in unreadable


def test_output_replaces_only_on_request_and_goes_through_no_link(run: Any, tmp_path: Path) -> None:
    of = trial("swappiness", "ahead")
    folder, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    words = ("apply", "--in", "/data/x", "--output", str(folder))
    run(*words, of=of)
    written = image(folder)
    run(*words, of=of)  # the same files
    first, last = sorted(path for path in folder.rglob("*") if path.is_file())
    last.write_text("mine")
    first.unlink()
    error = refused(run, *words, of=of)
    assert "already exists" in error.message
    assert "--force" in str(error.hint)
    assert (first.exists(), last.read_text()) == (False, "mine")  # nothing was written
    run(*words, "--force", of=of)
    assert image(folder) == written
    last.unlink()
    last.symlink_to(outside / "file")
    for more in ((), ("--force",)):
        assert "is a link" in refused(run, *words, *more, of=of).message
    last.unlink()
    moved = last.parent.rename(outside / "moved")
    last.parent.symlink_to(moved)
    for more in ((), ("--force",)):
        assert "is a link or a file, not a folder" in refused(run, *words, *more, of=of).message
    assert list(moved.iterdir()) == []
    assert [path.name for path in outside.iterdir()] == ["moved"]


def test_a_value_that_was_never_measured_is_replaced_only_by_name(run: Any, root: Path) -> None:
    """The trial compared 10 with 60, and the machine has 33: whether 10 is better than 33 is not known."""
    place = root / "proc/sys/vm/swappiness"
    place.write_text("33\n")
    before = image(root)
    error = refused(run, "apply", "--yes", of=trial("swappiness"))
    assert "33" in error.message
    assert "--replace-unmeasured vm.swappiness" in error.message
    assert image(root) == before
    shown = run("apply", "--in", "/data/x", "--yes", of=trial("swappiness", "ahead")).output
    assert "not applied: swappiness 10: it would replace 33" in shown
    assert place.read_text() == "33\n"
    run("revert")
    assert image(root) == before
    run("apply", "--yes", "--replace-unmeasured", "vm.swappiness", of=trial("swappiness"))
    assert place.read_text() == "10"


def test_the_value_of_today_counts_as_measured_only_if_a_level_had_it(run: Any, root: Path) -> None:
    (root / "proc/sys/vm/swappiness").write_text("33\n")
    today = {"factor": "swappiness", "setting": "vm.swappiness", "value": "33"}
    lab = {"kind": "in-place", "today": [{**today, "levels": ["60"]}]}
    assert "33 -> 10" in run("apply", "--dry-run", of=trial("swappiness", lab=lab)).output
    lab = {"kind": "in-place", "today": [{**today, "levels": []}]}
    assert "did not measure" in refused(run, "apply", "--dry-run", of=trial("swappiness", lab=lab)).message
