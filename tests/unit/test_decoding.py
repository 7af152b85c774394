"""Several threads of a fresh process convert to the same classes at the same moment."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

_TOGETHER = """
    import sys
    import threading

    {needs}

    THREADS = 8
    start, done = threading.Barrier(THREADS), []

    def work():
        start.wait()
        {statement}
        done.append(1)

    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == THREADS
"""

_TRIAL = Path(__file__).parents[2] / "docs/catalogue/block/readahead.iotrial"
_CASES = {
    "the head of a packed trial": (
        "import gzip, json\n"
        "from iotrial.store.packed.records import from_value\n"
        f"lines = map(json.loads, gzip.open({str(_TRIAL)!r}, 'rt'))\n"
        "head = next(line['trial'] for line in lines if 'trial' in line)",
        "from_value('trial', head, 'here', version=1)",
    ),
    "a dataclass with a field of another": (
        "from dataclasses import dataclass\n"
        "from iotrial.decoding import convert\n"
        "@dataclass\n"
        "class Inner:\n    a: int\n    b: str\n    c: float\n    d: dict[str, int]\n"
        "@dataclass\n"
        "class Outer:\n    a: Inner\n    b: list[Inner]\n    c: str\n"
        "inner = {'a': 1, 'b': 'x', 'c': 1.5, 'd': {}}",
        "convert({'a': inner, 'b': [inner], 'c': 'y'}, Outer)",
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_threads_that_convert_to_a_class_for_the_first_time_do_not_meet_it_half_described(case: str) -> None:
    needs, statement = _CASES[case]
    program = dedent(_TOGETHER).format(needs=needs, statement=statement)
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
