"""Fuzz one parser of ``parsers.py`` with libFuzzer (through atheris): ``python tests/fuzz/fuzz.py PARSER SECONDS``.

The corpus starts from the kept cases and from valid inputs. A finding is written to ``tests/fuzz/found/PARSER``; fix
it, then keep it in ``tests/fuzz/cases/PARSER``. An input that takes more than five seconds or 2 GiB is a finding too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

with atheris.instrument_imports(include=["iotrial", "tomllib", "json", "parsers"]):
    import parsers


def main() -> None:
    """Fuzz one parser for SECONDS; libFuzzer prints executions and coverage on standard error."""
    name, seconds, *more = sys.argv[1:]
    corpus = HERE / "corpus" / name
    found = HERE / "found" / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(parsers.seeds(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = HERE / "words" / f"{name}.txt"
    argv = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        "-timeout=5",
        "-rss_limit_mb=2048",
        "-max_len=32768",
        "-print_final_stats=1",
        f"-artifact_prefix={found}/",
        *([f"-dict={words}"] if words.is_file() else []),
        *more,
        str(corpus),
        *([str(HERE / "cases" / name)] if (HERE / "cases" / name).is_dir() else []),
    ]
    atheris.Setup(argv, parsers.PARSERS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
