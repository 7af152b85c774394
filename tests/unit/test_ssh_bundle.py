"""What is carried to a host: that it is all that conducting imports, and that a change in it is seen."""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
from functools import cache
from pathlib import Path

import pytest

import iotrial
from iotrial.fleet.ssh.carried import PACKAGES, left_out, left_out_of_library
from iotrial.fleet.ssh.libraries import c_library_needed, shared_libraries
from iotrial.fleet.ssh.resident import verify

ROOT = Path(iotrial.__file__).parent
#: layers of what a host does: all but what draws, serves pages, or reads other programs' files
LAYERS = (
    "analysis", "conduct", "design", "lab", "probe", "store", "study", "errors.py", "legible.py", "paths.py", "units.py",
    "fleet/agent.py", "fleet/keeper.py", "fleet/link.py", "fleet/order.py", "fleet/tail.py", "fleet/values.py",
    "fleet/ssh/resident.py",
)  # fmt: skip
#: imports that a host never comes to: in functions of what is only asked for on the coordinator
NEVER = {"tomlkit"}


def _files() -> list[Path]:
    found: list[Path] = []
    for layer in LAYERS:
        path = ROOT / layer
        assert path.exists(), layer
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


@cache
def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.slow
def test_every_package_that_the_layers_of_a_host_import_is_carried() -> None:
    foreign = {name for path in _files() for name in _imported(path)} - set(sys.stdlib_module_names)
    assert foreign - NEVER <= set(PACKAGES)
    # and none is declared that nobody needs: what is not imported by us is by one that is
    needed_by_those = {
        "annotated_types",
        "pydantic_core",
        "typing_extensions",
        "typing_inspection",
        "click",
        "pydantic",
    }
    assert set(PACKAGES) <= foreign | needed_by_those | {"iotrial"}


def test_of_the_standard_library_only_what_no_layer_imports_stays_behind() -> None:
    used = {name for path in _files() for name in _imported(path)} & set(sys.stdlib_module_names)
    assert not [
        name
        for name in used
        if left_out_of_library(f"{name}.py") or left_out_of_library(f"{name}/__init__.py")
    ]


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        ("numpy/_core/tests/test_x.py", True), ("numpy/f2py/__init__.py", True), ("numpy/_core/_multiarray_umath.so", False),
        ("iotrial/serve/app.py", True), ("iotrial/catalogue/files/permissions.toml", False), ("click/__init__.pyi", True),
        ("iotrial/lab/test.py", False),
    ],
)  # fmt: skip
def test_what_stays_behind_is_tests_types_and_sources_of_other_languages(path: str, stays: bool) -> None:
    assert left_out(path) is stays


def test_a_static_program_needs_no_library_and_python_needs_no_newer_one_than_is_here() -> None:
    import os

    here = tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2])  # type: ignore[union-attr]
    modules = [Path(str(importlib.import_module(name).__file__)) for name in ("_sqlite3", "_ctypes")]
    needed = c_library_needed([Path(sys.executable).resolve(), *modules])
    assert (2, 0) < needed <= here
    names = set(shared_libraries(modules))
    assert any(name.startswith("libsqlite3.so") for name in names)
    assert not any(name.startswith(("libc.so", "libm.so", "ld-", "linux-vdso")) for name in names)


@pytest.fixture
def placed(tmp_path: Path) -> tuple[Path, str]:
    """A small bundle on a host, and its id."""
    top = tmp_path / "bundle"
    (top / "bin").mkdir(parents=True)
    files = {"bin/python": b"one", "packages.pyc": b"two"}
    lines = b""
    for name, content in sorted(files.items()):
        (top / name).write_bytes(content)
        lines += f"{hashlib.sha256(content).hexdigest()} 600 {name}\n".encode()
    (top / "MANIFEST").write_bytes(lines)
    return top, hashlib.sha256(lines).hexdigest()


def test_a_bundle_is_as_it_was_sent(placed: tuple[Path, str]) -> None:
    assert verify(*placed) == ""


def test_a_bundle_with_a_changed_added_lost_or_linked_file_is_told(placed: tuple[Path, str]) -> None:
    top, name = placed
    (top / "bin/python").write_bytes(b"One")
    assert verify(top, name) == "bin/python has changed"
    (top / "bin/python").unlink()
    assert verify(top, name) == "bin/python is missing"
    (top / "elsewhere").write_bytes(b"one")
    (top / "bin/python").symlink_to(top / "elsewhere")
    assert verify(top, name) in ("bin/python has changed", "elsewhere was not sent")
    (top / "elsewhere").unlink()
    (top / "bin/python").unlink()
    (top / "bin/python").write_bytes(b"one")
    (top / "numpy.py").write_bytes(b"")
    assert verify(top, name) == "numpy.py was not sent"
    (top / "numpy.py").unlink()
    (top / "more").symlink_to("/usr")
    assert verify(top, name) == "more was not sent"
    (top / "more").unlink()
    assert verify(top, name) == ""
    assert verify(top, "0" * 64) == "MANIFEST is another one"
    (top / "MANIFEST").unlink()
    assert verify(top, name).startswith("MANIFEST")
