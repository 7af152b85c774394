"""A plan as a playbook for Ansible, to keep the same settings on machines that Ansible manages.

Files are written by tasks; what makes them take effect are handlers, which run only where a file has changed. Disks are
variables, since they have other names on other machines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from iotrial.tune.applied import FileStep, FolderStep, LiveStep, MountStep, ProfileStep, ReloadStep
from iotrial.tune.devices import DeviceName
from iotrial.tune.places_to_keep import Plan


def playbook(plan: Plan) -> str:
    """Return a play as YAML. Strings are quoted as in JSON."""
    disks = _disks(plan)
    values = {f"iotrial_disk_{number}": disk.pattern for number, disk in enumerate(disks, 1)}
    steps = handlers(plan)
    notify = json.dumps([name for name, _ in steps], ensure_ascii=False)
    tasks = []
    for step in plan.steps:
        task = list(_task(step, values))
        if task and "ansible.builtin.file:" not in task[1]:
            task.append(f"  notify: {notify}")
        tasks += task
    lines = [
        "# Settings that a trial of iotrial found better; the files carry the evidence.",
        "---",
        f"- name: {_text('Settings found by iotrial')}",
        "  hosts: \"{{ iotrial_hosts | default('all') }}\"",
        "  become: true",
        "  vars:",
        *(f"    {name}: {_text(value)}" for name, value in values.items()),
        "    iotrial_now: true  # false: the settings take effect at the next boot",
        "  tasks:",
        *(f"    {line}" for line in tasks),
        "  handlers:",
    ]
    for name, argv in steps:
        lines += [
            f"    - name: {_text(name)}",
            "      ansible.builtin.command:",
            f"        argv: {json.dumps(argv)}",
            "      when: iotrial_now",
        ]
    return "\n".join(lines)


def _disks(plan: Plan) -> list[DeviceName]:
    """Return the disks that the plan sets, each once."""
    found = [step.device for step in plan.steps if isinstance(step, LiveStep) and step.device is not None]
    return list(dict.fromkeys(found))


def _variable(text: str, values: Mapping[str, str]) -> str:
    """Return the text as a template: what is no variable of the play stays as it is."""
    text = re.sub(r"\{[{%#]", lambda found: "{{ '" + found[0] + "' }}", text)
    for name, value in values.items():
        text = text.replace(f'=="{value}"', f'=="{{{{ {name} }}}}"')
    return text


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _task(step: object, values: Mapping[str, str]) -> Iterator[str]:
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
            yield f"    content: {_text(_variable(after.decode(errors='replace'), values))}"
            yield '    mode: "0644"'
        case ProfileStep(after=after):
            yield f"- name: {_text(f'Switch tuned to {after}')}"
            yield "  ansible.builtin.command:"
            yield f"    argv: {json.dumps(['tuned-adm', 'profile', after])}"
            yield "  changed_when: true"


def _changed_lines(step: FileStep) -> Iterator[tuple[str, str]]:
    """Yield the lines of fstab that change, without the comments that are added."""
    old = (step.before or b"").decode(errors="replace").split("\n")
    new = [line for line in step.after.decode(errors="replace").split("\n") if line not in old]
    gone = [line for line in old if line not in step.after.decode(errors="replace").split("\n")]
    yield from zip(gone, [line for line in new if not line.startswith("#")], strict=False)


def handlers(plan: Plan, *, variables: bool = True) -> list[tuple[str, list[str]]]:
    """Return what makes the files take effect without a reboot, in order: names and commands.

    ``variables``: disks are those of the play; else those of the plan.
    """
    found: list[list[str]] = []
    paths = [step.path for step in plan.files]
    found += [["sysctl", "-p", path] for path in paths if path.startswith("/etc/sysctl.d/")]
    found += [["systemd-tmpfiles", "--create", path] for path in paths if path.startswith("/etc/tmpfiles.d/")]
    found += [list(step.argv) for step in plan.steps if isinstance(step, ReloadStep)]
    for number, disk in enumerate(_disks(plan), 1):
        only = f"{{{{ iotrial_disk_{number} }}}}" if variables else disk.pattern
        match = {
            "ENV": f"--property-match={disk.key}={only}",
            "ATTR": f"--attr-match={disk.key}={only}",
        }.get(disk.kind, f"--sysname-match={only}")
        found.append(["udevadm", "trigger", "--action=change", "--subsystem-match=block", match])
    found += [
        ["mount", "-o", f"remount,{step.after}", step.mount]
        for step in plan.steps
        if isinstance(step, MountStep)
    ]
    return [(f"Apply now: {' '.join(argv).replace('{{ ', '').replace(' }}', '')}", argv) for argv in found]
