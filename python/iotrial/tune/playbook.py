"""A plan as a task list for Ansible, to keep the same settings on machines that Ansible manages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from iotrial.tune.applied import FileStep, FolderStep, LiveStep, MountStep, ProfileStep, ReloadStep
from iotrial.tune.places_to_keep import Plan


def playbook(plan: Plan) -> str:
    """Return YAML: files as they would be written, then what makes them take effect. Strings are quoted as in JSON."""
    lines = [
        "# Settings that a trial of iotrial found better; the files carry the evidence. Run as root.",
        "---",
    ]
    for step in plan.steps:
        lines += _task(step)
    for argv in _commands(plan):
        lines += [
            f"- name: {_text('Apply now: ' + ' '.join(argv))}",
            "  ansible.builtin.command:",
            f"    argv: {json.dumps(argv)}",
        ]
    return "\n".join(lines)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _task(step: object) -> Iterator[str]:
    match step:
        case FolderStep(path=path):
            yield f"- name: {_text(f'Make {path}')}"
            yield "  ansible.builtin.file:"
            yield f"    path: {_text(path)}"
            yield "    state: directory"
            yield '    mode: "0755"'
        case FileStep(path="/etc/fstab"):
            for before, after in _changed_lines(step):
                yield f"- name: {_text('Set options in /etc/fstab')}"
                yield "  ansible.builtin.lineinfile:"
                yield "    path: /etc/fstab"
                yield f"    regexp: {_text('^' + re.escape(before) + '$')}"
                yield f"    line: {_text(after)}"
        case FileStep(path=path, after=after):
            yield f"- name: {_text(f'Write {path}')}"
            yield "  ansible.builtin.copy:"
            yield f"    dest: {_text(path)}"
            yield f"    content: {_text(after.decode(errors='replace'))}"
            yield '    mode: "0644"'
        case ProfileStep(after=after):
            yield f"- name: {_text(f'Switch tuned to {after}')}"
            yield "  ansible.builtin.command:"
            yield f"    argv: {json.dumps(['tuned-adm', 'profile', after])}"


def _changed_lines(step: FileStep) -> Iterator[tuple[str, str]]:
    """Yield the lines of fstab that change, without the comments that are added."""
    old = (step.before or b"").decode(errors="replace").split("\n")
    new = [line for line in step.after.decode(errors="replace").split("\n") if line not in old]
    gone = [line for line in old if line not in step.after.decode(errors="replace").split("\n")]
    yield from zip(gone, [line for line in new if not line.startswith("#")], strict=False)


def _commands(plan: Plan) -> list[list[str]]:
    """Return what makes the files take effect without a reboot."""
    found: list[list[str]] = []
    paths = [step.path for step in plan.files]
    found += [["sysctl", "-p", path] for path in paths if path.startswith("/etc/sysctl.d/")]
    found += [["systemd-tmpfiles", "--create", path] for path in paths if path.startswith("/etc/tmpfiles.d/")]
    found += [list(step.argv) for step in plan.steps if isinstance(step, ReloadStep)]
    if any(isinstance(step, LiveStep) and step.device is not None for step in plan.steps):
        found.append(["udevadm", "trigger", "--action=change", "--subsystem-match=block"])
    found += [
        ["mount", "-o", f"remount,{step.after}", step.mount]
        for step in plan.steps
        if isinstance(step, MountStep)
    ]
    return found
