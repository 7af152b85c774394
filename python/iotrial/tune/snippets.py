"""A plan as configuration for new machines: user data of cloud-init, and a module of NixOS.

Sources: cloud-init's modules write_files and runcmd; the NixOS options boot.kernel.sysctl, services.udev.extraRules,
systemd.tmpfiles.rules and fileSystems.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from iotrial.tune.applied import FileStep, MountStep, ProfileStep
from iotrial.tune.places_to_keep import NotKept, Plan, comment
from iotrial.tune.playbook import handlers

_HEAD = "# Settings that a trial of iotrial found better."
_DISKS = "# A rule for a disk names that of the trial's machine: put in the serial number of yours."


def cloud_init(plan: Plan) -> str:
    """Return user data: the files, and the commands that make them take effect. Raises NotKept for lines of fstab."""
    lines = ["#cloud-config", _HEAD, _DISKS, "write_files:"]
    for step in plan.files:
        if step.path == "/etc/fstab":
            raise NotKept(
                "a new machine has no line in /etc/fstab to edit",
                hint="add the options to `mounts` of your user data, and choose the other settings with --only",
            )
        lines += [
            f"  - path: {json.dumps(step.path)}",
            '    permissions: "0644"',
            "    content: |",
            *(f"      {line}".rstrip() for line in _text(step).split("\n")),
        ]
    commands = [argv for _, argv in handlers(plan, variables=False)]
    commands += [["tuned-adm", "profile", step.after] for step in plan.steps if isinstance(step, ProfileStep)]
    if commands:
        lines += ["runcmd:", *(f"  - {json.dumps(argv)}" for argv in commands)]
    return "\n".join(lines)


def nixos(plan: Plan) -> str:
    """Return a module. Raises NotKept for a profile of tuned."""
    if any(isinstance(step, ProfileStep) for step in plan.steps):
        raise NotKept(
            "a profile of tuned cannot be written as a module of NixOS",
            hint="`--print ansible` prints it as files",
        )
    lines = [_HEAD, _DISKS, "{", "  boot.kernel.sysctl = {"]
    for entry in plan.entries:
        if entry.mechanism == "sysctl.d":
            key, _, value = entry.lines[0].partition(" = ")
            lines += [
                *(f"    {one}" for one in comment(entry.choice)),
                f"    {_quoted(key)} = {_quoted(value)};",
            ]
    lines.append("  };")
    rules = list(_file_lines(plan, "/etc/udev/rules.d/"))
    if rules:
        lines += ["  services.udev.extraRules = ''", *(f"    {_indented(line)}" for line in rules), "  '';"]
    lines.append("  systemd.tmpfiles.rules = [")
    for entry in plan.entries:
        if entry.mechanism == "tmpfiles.d":
            lines += [*(f"    {one}" for one in comment(entry.choice)), f"    {_quoted(entry.lines[0])}"]
    lines.append("  ];")
    options: dict[str, list[str]] = {}
    for step in plan.steps:
        if isinstance(step, MountStep):
            options.setdefault(step.mount, []).extend(step.after.split(","))
    lines += [
        f"  fileSystems.{_quoted(mount)}.options = [ {' '.join(map(_quoted, words))} ];"
        for mount, words in options.items()
    ]
    return "\n".join([*lines, "}"])


def _text(step: FileStep) -> str:
    return step.after.decode(errors="replace").rstrip("\n")


def _file_lines(plan: Plan, folder: str) -> Iterator[str]:
    for step in plan.files:
        if step.path.startswith(folder):
            yield from _text(step).split("\n")


def _quoted(text: str) -> str:
    """Quote a string of Nix, in which ${ would begin an expression."""
    return json.dumps(text, ensure_ascii=False).replace("${", "\\${")


def _indented(line: str) -> str:
    """Escape a line of an indented string of Nix."""
    return line.replace("''", "'''").replace("${", "''${")
