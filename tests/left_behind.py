"""Machine state that tests must leave unchanged, and a comparison of it before and after."""

from __future__ import annotations

from pathlib import Path

#: device files that change with memory use, and those that Linux 6.1 keeps after an image was attached
MOVING = ("max_bytes", "min_bytes", "discard_max_bytes")


def own_state() -> dict[str, str]:
    """Return the state that is private to a mount namespace: the mounts, and the lab's folder in /run."""
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "run folder": str(Path("/run/iotrial").exists()),
    }


def host_state() -> dict[str, str]:
    """Return mounts, loop devices with their settings, sysctls and the lab's folder, from the kernel's own
    files."""
    state = own_state()
    for device in sorted(Path("/sys/block").glob("loop*")):
        for partition in device.glob(f"{device.name}p*"):
            state[f"{device.name} {partition.name}"] = "a partition"
        backing = device / "loop" / "backing_file"
        if backing.exists():
            try:
                state[f"{device.name} backing"] = backing.read_text().strip()
            except OSError:
                continue
        for file in (*sorted((device / "queue").iterdir()), *sorted((device / "bdi").glob("*"))):
            if file.is_file() and file.stat().st_mode & 0o200 and file.name not in MOVING:
                try:
                    state[f"{device.name} {file.name}"] = file.read_text().strip()
                except OSError:  # not supported by this device
                    continue
    for key in Path("/proc/sys/vm").iterdir():
        if key.stat().st_mode & 0o400 and key.name not in ("stat_refresh", "compact_memory", "drop_caches"):
            state[f"vm.{key.name}"] = key.read_text().strip()
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    state["huge pages"] = huge.read_text().strip() if huge.exists() else ""
    return state


def left_by_tests(
    before: dict[str, str], after: dict[str, str], *, stand_ins: bool = False
) -> dict[str, tuple[str | None, str | None]]:
    """Return what the tests have changed.

    Not counted as damage: a loop device that the kernel created on demand, which stays, unused, until the
    next boot; the write cache of one that was attached for the first time since boot (RELIABILITY.md); and a
    folder in /run that existed before and is gone, since that is what restoring an earlier trial does.

    ``stand_ins``: tests have attached loop devices themselves, with ``losetup`` or ``mount``, which do not
    restore what the first attach changes. The lab does, so a check of the lab alone leaves this out.
    """
    made = {key.split()[0] for key in after if key.startswith("loop")} - {key.split()[0] for key in before}
    meant = {
        key: value for key, value in after.items() if key.split()[0] not in made or key.endswith("backing")
    }
    if before.get("run folder") == "True":
        meant["run folder"] = "True"
    changed = {
        key: (before.get(key), meant.get(key)) for key in before | meant if before.get(key) != meant.get(key)
    }
    first = {key.split()[0] for key, values in changed.items() if is_first_attach(key, values)}
    if stand_ins:
        first |= {key.split()[0] for key, values in changed.items() if is_rotational(key, values)}
    return {
        key: values
        for key, values in changed.items()
        if not is_first_attach(key, values)
        and not (stand_ins and is_rotational(key, values))
        and not (stand_ins and key.endswith(" read_ahead_kb") and key.split()[0] in first and raised(values))
    }


def is_first_attach(key: str, values: tuple[object, object]) -> bool:
    """Return whether this is the permanent change that the kernel makes when a file is first attached to a
    loop device."""
    return "loop" in key and key.endswith(" write_cache") and values == ("write through", "write back")


def is_rotational(key: str, values: tuple[object, object]) -> bool:
    """Return whether this is the change that some kernels make, and leave, when a file on a rotating disk is
    attached to a loop device."""
    return "loop" in key and key.endswith(" rotational") and values == ("0", "1")


def raised(values: tuple[str | None, str | None]) -> bool:
    """Return whether read-ahead went from its value at boot to the value that attaching sets."""
    return values == ("128", "2560")
