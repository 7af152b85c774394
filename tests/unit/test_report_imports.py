"""Report modules are imported lazily, so that the command line starts fast.

Only ``report.text`` and ``report.live``, which are for a terminal, need rich.
"""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("jinja2", "rich")


def loaded_after(*modules: str) -> set[str]:
    program = f"import sys, {', '.join(modules)}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_report_loads_no_template_library_and_rich_for_terminals_alone() -> None:
    report = "iotrial.report"
    assert (
        loaded_after(
            f"{report}.document",
            f"{report}.html",
            f"{report}.markdown",
            f"{report}.jsonreport",
            f"{report}.figures",
            f"{report}.trial_blocks",
            f"{report}.comparison_blocks",
        )
        == set()
    )
    assert loaded_after(f"{report}.render") == {"rich"}


def test_the_report_and_the_declarations_of_knobs_import_nothing_of_the_lab() -> None:
    program = (
        "import sys, iotrial.report.document, iotrial.report.best, iotrial.report.safety\n"
        "from iotrial.knobs.declaration import declarations\n"
        "assert 'sysctl' in declarations()\n"
        "print(*[m for m in sys.modules if m.startswith(('iotrial.lab', 'iotrial.guest', 'iotrial.probe'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
