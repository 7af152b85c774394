"""Numbers and verdicts that every version must reproduce, extracted from the program's output.

    python tests/golden/golden_numbers.py [NAME]...

rewrites them in ``recorded``, one JSON file per packed trial and one per plan. Do that only for an intended change of
the method, and show what changed (METHOD.md, CHANGELOG.md). Everything comes from ``--json``, so the program's
internals do not matter. Sentences are left out: their wording may change at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "docs" / "catalogue"
RECORDED = Path(__file__).resolve().parent / "recorded"
#: keys with prose, or with text that differs from machine to machine
PROSE = frozenset(
    {"text", "why", "note", "notes", "reason", "question", "title", "source", "says", "consequence", "hint"}
    | {"level_safety", "reference_safety", "safety", "cannot", "needs", "imported", "host", "options"}
    | {"lab_settings", "version", "number"}
)
#: parts of a plan that are kept
PLAN = ("seed", "primary_effects", "conditions", "design", "blocks")


def packed() -> list[Path]:
    """Return the packed trials of the catalogue."""
    return sorted(CATALOGUE.glob("*/*.iotrial"))


def name_of(path: Path) -> str:
    """Return a name such as ``mount-atime`` for ``mount/atime.iotrial``."""
    return f"{path.parent.name}-{path.stem}"


def json_of(*words: str, state: str | None = None) -> Any:
    """Return what ``iotrial WORDS --json`` prints. Status 3 (the trial is invalid) counts as an answer too."""
    environment = {**os.environ, **({"XDG_STATE_HOME": state} if state else {})}
    done = subprocess.run(
        [sys.executable, "-m", "iotrial", *words, "--json"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode not in (0, 3, 6):
        raise RuntimeError(
            f"iotrial {' '.join(words)}: status {done.returncode}: {done.stderr.strip()[-800:]}"
        )
    return json.loads(done.stdout)


def report(path: Path) -> dict[str, Any]:
    """Return the numbers of a packed trial."""
    return kept(json_of("report", str(path)))


def kept(found: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded part of a report. Evidence is long, so it is kept as a digest per metric."""
    numbers = {
        part: plain(value)
        for part, value in found.items()
        if value and part not in ("schema", "trial", "evidence")
    }
    numbers["trial"] = plain(
        {key: found["trial"].get(key) for key in ("state", "seed", "alpha", "margin", "controls")}
    )
    numbers["evidence"] = evidence(found.get("evidence", []))
    return numbers


def stored(number: str, state: str) -> dict[str, Any]:
    """Return the numbers of a trial in the store of this state folder."""
    return kept(json_of("report", number, state=state))


def evidence(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return one digest per metric over all its values, to six digits. Sorted by text: reports need not keep an order."""
    of: dict[str, list[str]] = {}
    for row in rows:
        of.setdefault(row["metric"], []).append(json.dumps(plain(row, 6), sort_keys=True))
    return {metric: digest(sorted(values)) for metric, values in sorted(of.items())}


def plan(*words: str) -> dict[str, Any]:
    """Return the design and the first rounds of a plan, with a digest of the files that each run reads."""
    found = json_of("plan", *words, "--rounds", "3", "--trust")
    numbers = {part: plain(found[part]) for part in PLAN if part in found}
    for block in numbers.get("blocks", ()):
        for run in block["runs"]:
            if "files" in run:
                run["files"] = digest(run["files"])
    return numbers


def plain(value: Any, digits: int = 12) -> Any:
    """Drop prose, and round numbers to ``digits``, because sums may be computed in another order."""
    if isinstance(value, dict):
        return {key: plain(one, digits) for key, one in value.items() if key not in PROSE}
    if isinstance(value, list):
        return [plain(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def digest(value: Any) -> str:
    """Return the first 16 hex digits of the SHA-256 of the JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


#: Relative. Vector instructions differ in the last digits of exp, log and tanh, and sums may be computed in
#: another order.
NEAR, NEAR_P = 1e-9, 1e-6
#: zero up to rounding
NOTHING = 1e-12
#: The estimate is the minimum of a function that is flat there. Between a processor with AVX-512 and one
#: without, it differed by up to .0103 of the interval's width in the 52 packed trials; no verdict differed.
OF_WIDTH = 2e-2
#: A bound is where evidence crosses a level, and is flat there too in an interval without a verdict: .0000028 of the width
#: between two processors, in one effect of all packed trials.
BOUND_OF_WIDTH = 1e-5


def differences(expected: Any, found: Any, at: str = "", near: float = NOTHING) -> list[str]:
    """Describe each difference between two values. ``near``: absolute tolerance, in addition to the last digits."""
    if isinstance(expected, dict) and isinstance(found, dict):
        out = [f"{at}.{key}: is gone" for key in expected.keys() - found.keys()]
        # a new key is no difference: reports may add information
        return out + [
            one
            for key in expected.keys() & found.keys()
            for one in differences(expected[key], found[key], f"{at}.{key}", _near(expected, key))
        ]
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{at}: {len(found)} instead of {len(expected)}"]
        expected, found = _in_order(expected), _in_order(found)
        return [
            one
            for n, pair in enumerate(zip(expected, found, strict=True))
            for one in differences(*pair, f"{at}[{n}]", near)
        ]
    if isinstance(expected, float) and isinstance(found, int | float):
        allowed = max(near, NEAR * max(abs(expected), abs(found)))
        return [] if abs(expected - found) <= allowed else [f"{at}: {found!r} instead of {expected!r}"]
    return [] if expected == found else [f"{at}: {found!r} instead of {expected!r}"]


def _in_order(rows: list[Any]) -> list[Any]:
    """Sort effects by what they compare. A report may sort them by estimates, of which two can be practically equal."""
    if not all(isinstance(row, dict) and {"factor", "level", "reference"} <= row.keys() for row in rows):
        return rows
    names = ("workload", "condition", "factor", "level", "reference", "response", "kind")
    return sorted(rows, key=lambda row: json.dumps([row.get(name) for name in names]))


def _near(table: dict[str, Any], key: str) -> float:
    low, high = table.get("low"), table.get("high")
    if key in ("ratio", "difference") and isinstance(low, float) and isinstance(high, float):
        return max(NOTHING, OF_WIDTH * (high - low))
    if (
        key in ("low", "high", "two_sided", "detectable")
        and isinstance(low, float)
        and isinstance(high, float)
    ):
        return max(NOTHING, BOUND_OF_WIDTH * (high - low))
    return NEAR_P * table[key] if key == "p_anytime" else NOTHING


def write(name: str, value: Any) -> None:
    """Write one file of ``recorded``, with a line per effect, control and block."""
    RECORDED.mkdir(exist_ok=True)
    parts = []
    for key, part in value.items():
        if isinstance(part, list):
            rows = ",\n  ".join(json.dumps(row) for row in part)
            parts.append(f" {json.dumps(key)}: [\n  {rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(part)}")
    (RECORDED / f"{name}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> None:
    """Write all files, or those named on the command line."""
    chosen = [path for path in packed() if not sys.argv[1:] or name_of(path) in sys.argv[1:]]

    def both(path: Path) -> None:
        write(f"report-{name_of(path)}", report(path))
        write(f"plan-{name_of(path)}", plan("--like", str(path)))
        print(name_of(path), file=sys.stderr)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(both, chosen))


if __name__ == "__main__":
    main()
