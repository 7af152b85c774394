"""What a host is brought: which Python packages, and what of Python's standard library stays behind.

Declared, not guessed: a test holds the list of packages against what the layers that conduct really import, so that a new
import cannot fail for the first time on somebody's host.
"""

from __future__ import annotations

#: packages that conducting a trial imports, and those that they import. Nothing that only draws, writes HTML or serves pages.
PACKAGES = (
    "annotated_types",
    "click",
    "elftools",
    "iotrial",
    "msgspec",
    "numpy",
    "pydantic",
    "pydantic_core",
    "pydoe",
    "typing_extensions",
    "typing_inspection",
)

#: folders inside packages that no trial needs, by their path from the folder of packages
WITHOUT_FOLDERS = frozenset(
    {
        "elftools/dwarf/tests",
        "iotrial/serve",
        "numpy/distutils",
        "numpy/f2py",
        "numpy/_core/include",
        "numpy/random/lib",
    }
)
#: folders of that name, wherever they are
WITHOUT_NAMES = frozenset({"__pycache__", "tests", "test", "idle_test"})
#: files with these endings
WITHOUT_SUFFIXES = (".pyi", ".typed", ".a", ".c", ".h", ".pxd", ".pyx", ".md", ".txt.orig")

#: of the standard library: what needs a screen, builds packages, or tests Python itself
WITHOUT_LIBRARY = frozenset(
    {
        "dist-packages",
        "distutils",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "sitecustomize.py",
        "site-packages",
        "tkinter",
        "turtle.py",
        "turtledemo",
        "venv",
    }
)
#: extension modules of the standard library, by what stands before the first dot
WITHOUT_EXTENSIONS = frozenset(
    {
        "_crypt",
        "_curses",
        "_curses_panel",
        "_dbm",
        "_gdbm",
        "_tkinter",
        "audioop",
        "nis",
        "ossaudiodev",
        "readline",
        "spwd",
    }
)


def left_out(path: str) -> bool:
    """Whether a file of a package (its path from the folder of packages) stays behind."""
    parts = path.split("/")
    if WITHOUT_NAMES.intersection(parts[:-1]) or path.endswith(WITHOUT_SUFFIXES):
        return True
    return any("/".join(parts[:depth]) in WITHOUT_FOLDERS for depth in range(1, len(parts)))


def left_out_of_library(path: str) -> bool:
    """Whether a file of the standard library (its path from that folder) stays behind."""
    parts = path.split("/")
    first = parts[0]
    if first in WITHOUT_LIBRARY or first.startswith("config-") or WITHOUT_NAMES.intersection(parts[:-1]):
        return True
    if first == "lib-dynload":
        name = parts[-1].split(".")[0]
        return name in WITHOUT_EXTENSIONS or name.startswith(("_test", "_xx", "xx", "_ctypes_test"))
    return path.endswith(WITHOUT_SUFFIXES)
