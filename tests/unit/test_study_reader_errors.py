"""Reader errors for unusable studies: file, line, and what was expected; never any other exception."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_examples import WHOLE, changed

from iotrial.errors import StudyError
from iotrial.study.reader import load, read_study


def _complaint(text: str) -> StudyError:
    with pytest.raises(StudyError) as caught:
        read_study(text, "s.toml", trusted=False)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ('margin = "2 %"', "margn = 2", 9, '[study] has no key "margn"', '"margin"'),
        ('margin = "2 %"', "margin = 2", 9, "without % is at most 1", '"2 %"'),
        ('margin = "2 %"', "margin = nan", 9, "expected a margin", ""),
        ('margin = "2 %"', "margin = true", 9, "expected a margin", ""),
        ("alpha = 0.01", "alpha = 0.7", 10, "alpha must be above 0", ""),
        ('name = "whole" ', "#", 1, '[study] lacks "name"', ""),
        (
            'kind = "image"',
            'kind = "imgae"',
            13,
            'expected "directory", "image", "device", "guest" or "in-place", found "imgae"',
            "",
        ),
        ('size = "1 GiB"', 'size = "1 GiB 2 B"', 15, "one number and one unit", ""),
        ('size = "1 GiB"', "size = 1073741824", 15, "expected a size in quotes, found 1073741824", ""),
        ('size = "1 GiB"', 'size = "1 GIBS"', 15, 'unknown unit of a size: "GIBS"', '"GiB"'),
        ('time = "90 s"', 'time = "0 s"', 20, "expected above 0", ""),
        ("blocks = 100", "blocks = 1.5", 21, "expected a whole number, found 1.5", ""),
        ("blocks = 100", "blocks = true", 21, "expected a whole number, found true", ""),
        ("[budget]", "[bugdet]", 19, 'the file has no key "bugdet"', '"budget"'),
        (
            'reference = "relatime"',
            'reference = "realtime"',
            27,
            'no level of "atime" is called "realtime"',
            '"relatime"',
        ),
        (
            'reference = "relatime"',
            'refrence = "relatime"',
            27,
            '[[factor]] has no key "refrence"',
            '"reference"',
        ),
        ('default = ["relatime", "noatime"]', 'default = ["noatime"]', 28, "must hold the reference", ""),
        ('"strictatime", "relatime", "noatime"', '"a", "relatime", "noatime", "R ELATIME"', 26, "twice", ""),
        ('"strictatime", "relatime", "noatime"', '"a\\u0007", "relatime"', 26, "U+0007", ""),
        ('"strictatime", "relatime", "noatime"', '"relatime", "no\\u202eatime"', 26, "U+202E", ""),
        ('"strictatime", "relatime", "noatime"', '"relatime", 1.5', 26, "found 1.5", ""),
        ('"strictatime", "relatime", "noatime"', '"relatime"', 26, "two levels", ""),
        ('"strictatime", "relatime", "noatime"', '"relatime", "a,b"', 26, "cannot contain", ""),
        ('"strictatime", "relatime", "noatime"', '"relatime", "control:negative"', 26, "reserved", ""),
        ('knob = "mount.atime"', "", 26, "has no knob", ""),
        ('knob = "mount.atime"', 'knob = "block.read_ahead_kb"', 30, "is given twice", ""),
        (
            'set = { "block.read_ahead_kb" = 128 }',
            "set = { block.read_ahead_kb = 128 }",
            33,
            '"block" is a table',
            '"block.read_ahead_kb"',
        ),
        (
            'set = { "block.read_ahead_kb" = 128 }',
            'set = [{ knob = "mount.atime", level = "noatime" }, { knob = "mount.atime", level = "relatime" }]',
            33,
            'knob "mount.atime" is given twice',
            "",
        ),
        (', set = { "block.read_ahead_kb" = 128 }', "", 33, "either value or set", ""),
        ('label = "stock", ', "", 33, '[[factor.levels]] lacks "label"', ""),
        ('name = "tuning"', 'name = "atime"', 31, 'factor "atime" is given twice', ""),
        ('name = "tuning"', 'name = "workload"', 31, "reserved", ""),
        (
            'role = "condition"\ndefault',
            'role = "conditon"\ndefault',
            41,
            'expected "treatment" or "condition"',
            "",
        ),
        ('placeholder = "{threads}"', 'placeholder = "{thread}"', 47, 'has the placeholder "{thread}"', ""),
        (
            'knob = "sysctl"\nkey = "vm.dirty_ratio"',
            'knob = "mount.atime"\n#',
            51,
            "is given twice",
            "",
        ),
        ('key = "vm.dirty_ratio"', 'keys = "vm.dirty_ratio"', 53, '[[fixed]] has no key "keys"', '"key"'),
        ('knob = "sysctl"', 'knob = "mount.atime"\nplaceholder="x"', 53, "no command workload has", ""),
        ("level = 10", "level = []", 54, "expected text, a whole number, true or false, found a list", ""),
        ('kind = "files"', 'kind = "file"', 58, 'no workload kind is called "file"', '"files"'),
        ("files = 20", "fiels = 20", 59, '[[workload]] has no key "fiels"', '"files"'),
        ("files = 20", "files = 0", 59, "expected at least 1, found 0", ""),
        (
            '"open", "read-to-end", "close"',
            '"open", "reed", "close"',
            61,
            'no operation is called "reed"',
            '"read"',
        ),
        ('cache = "warm"', 'cache = "clod"', 62, 'no cache state is called "clod"', '"cold"'),
        ('knob = "file.size"', 'knob = "cache.state"', 62, 'varied by factor "size"', ""),
        ('timeout = "5 min"', 'timeout = "5 mni"', 67, 'unknown unit of a duration: "mni"', '"min"'),
        ('{ LC_ALL = "C" }', "{ LC_ALL = 1 }", 68, "expected text in quotes, found 1", ""),
        ('{ LC_ALL = "C" }', '{ "LC ALL" = "C" }', 68, "the name of a variable", ""),
        ("only = { size", 'only = { atime = ["noatime"], size', 69, "restricted by condition factors", ""),
        ('"10KiB", "1 MiB"]', '"10KiB", "2 MiB"]', 69, 'no level of "size" is called "2 MiB"', '"1 MiB"'),
        ('name = "out"', 'name = "in"', 74, 'step "in" is given twice', ""),
        ('"{files}"', '"x{files}"', 75, "a separate argument", ""),
        ('name = "slow"', 'name = "sort"', 78, 'workload "sort" is given twice', ""),
        ('argv = ["md5sum", "{file}"]', "", 77, "found neither", ""),
        ('argv = ["md5sum", "{file}"]', "argv = []", 80, "cannot be empty", ""),
        ('argv = ["md5sum", "{file}"]', 'argv = ["a\\u0000"]', 80, "U+0000", ""),
        ('argv = ["md5sum", "{file}"]', 'argv = "md5sum x"', 80, "expected a list, found", ""),
        (
            'name = "read_to_end_time"',
            'name = "read_to_end"',
            85,
            'no response is called "read_to_end"',
            '"read_to_end_time"',
        ),
        (
            'workload = "probe"\nname',
            'workload = "prob"\nname',
            84,
            'no workload is called "prob"',
            '"probe"',
        ),
        ('name = "cpu"', 'name = "cpu"\nunit = "ms"', 90, 'measured in "s", not in "ms"', ""),
        ('name = "cpu"', 'name = "read_to_end_time"', 88, "is given twice", ""),
        ("ratio = 0.5", "ratio = -0.5", 97, "expected above 0, found -0.5", ""),
        ("ratio = 0.5", "ratio = inf", 97, "expected a finite number", ""),
        ('level = "noatime"', 'level = "relatime"', 96, "compares two levels", ""),
        ('size = "10kib", w', 'sizes = "10kib", w', 100, 'no condition is called "sizes"', '"size"'),
        ('response = "read_to_end_time"', 'response = "max_rss"', 99, 'no response is called "max_rss"', ""),
    ],
)
def test_an_error_names_its_line_what_was_wanted_and_the_nearest(
    old: str, new: str, line: int, message: str, hint: str
) -> None:
    error = _complaint(changed(old, new))
    assert error.line == line, error.message
    assert error.message.startswith(f"s.toml:{line}: ")
    assert message in error.message
    assert hint in (error.hint or "")


def test_a_misspelt_key_is_reported_and_not_the_one_that_is_missing_for_it() -> None:
    error = _complaint(changed('question = "Does it matter?"', 'qestion = "Does it matter?"'))
    assert 'no key "qestion"' in error.message
    assert '"question"' in (error.hint or "")


def test_a_claim_names_its_factor_where_there_are_several() -> None:
    error = _complaint(WHOLE.replace('factor = "atime"\nlevel = "noatime"', 'level = "noatime"'))
    assert "needs its factor" in error.message
    assert error.line == 92


def test_a_claim_of_a_direction_has_no_number() -> None:
    error = _complaint(WHOLE.replace("\nratio = ", '\nsays = "faster"\nratio = ', 1))
    assert "cannot have a ratio or value" in error.message
    assert 'expected one of "faster"' not in error.message
    tolerated = _complaint(WHOLE.replace("\nratio = ", "\ntolerance = 2\nratio = ", 1))
    assert "only a claim of a value has a tolerance" in tolerated.message
    misspelt = _complaint(WHOLE.replace("\nratio = ", '\nsays = "quicker"\n# ', 1))
    assert "faster" in str(misspelt)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ('{ disk = "round" }', "rotating"),
        ('{ disc = "rotating" }', "disc"),
        ('{ rate = "fast" }', "rate"),
        ("{ engine = [] }", "engine"),
        ('"a rotating disk"', "table"),
    ],
)
def test_what_a_claim_needs_is_a_fact_that_a_trial_records(needs: str, said: str) -> None:
    error = _complaint(WHOLE.replace("\nratio = ", f"\nneeds = {needs}\nratio = ", 1))
    assert said in str(error)
    assert error.line is not None


def test_a_claim_has_no_condition_on_its_own_factor() -> None:
    head, claim = WHOLE.split("[[claim]]", 1)
    own = claim.replace("condition = { size = ", 'condition = { atime = "noatime", size = ', 1)
    assert own != claim
    assert 'no condition is called "atime"' in _complaint(f"{head}[[claim]]{own}").message


def test_what_a_study_cannot_do_without_is_named() -> None:
    assert "lacks the table [study]" in _complaint("").message
    head = '[study]\nname = "x"\nquestion = "?"\n'
    assert "needs a factor" in _complaint(head).message
    factor = '[[factor]]\nname = "f"\nknob = "k"\nlevels = ["a", "b"]\n'
    assert "needs a workload" in _complaint(head + factor).message
    condition = factor + 'role = "condition"\n'
    assert "needs a factor" in _complaint(head + condition).message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[study]\nname = "x\n', 2, "column 10"),
        ("[study]\nname = \n", 2, "column 8"),
        ("a = 1\na = 2\n", 2, "Cannot overwrite a value"),
        ("a = [[[", None, ""),
        ("a = " + "9" * 5000, None, ""),
        ("[study]\nmargin = 0x" + "f" * 5000 + '\nname = "x"\nquestion = "?"', 2, "a huge number"),
        ("a = " + "[" * 15000, None, "nested too deeply"),
        ("a = 1 # " + "x" * 20000, 1, "16384 characters"),
        ("#\n" * 600_000, None, "1 MiB"),
        ("#" + "." * 2001, None, "too many dots"),
        ("factor = 3", None, "the table [study]"),
        ("study = 3", 1, "expected a table, found 3"),
        ("study = {}\nfactor = 3", 2, "expected a list, found 3"),
        ("study = {}\nfactor = [1]", 2, "expected a table, found 1"),
        ("study = {}\nfactor = [" + "{}," * 65 + "]", 2, "at most 64 entries"),
    ],
)
def test_text_that_is_no_study_keeps_the_place_of_its_fault(
    text: str, line: int | None, message: str
) -> None:
    error = _complaint(text)
    assert error.line == line
    assert message in error.message


def test_a_study_s_name_may_carry_its_family() -> None:
    assert (
        read_study(changed('name = "whole" ', 'name = "files/whole"'), "s", trusted=False).name
        == "files/whole"
    )
    for name in ("files/a/b", "/whole", "files/", "../whole", ""):
        assert "a study's name" in _complaint(changed('name = "whole" ', f'name = "{name}"')).message


def test_long_labels_and_too_many_levels_are_refused() -> None:
    levels = '"strictatime", "relatime", "noatime"'
    assert "at most 100 characters" in _complaint(changed(levels, f'"relatime", "{"x" * 101}"')).message
    many = ", ".join(f'"{n}"' for n in range(257))
    assert "at most 256 entries" in _complaint(changed(levels, many)).message


def test_an_error_never_repeats_control_characters() -> None:
    error = _complaint('[study]\n"na\\u001b[31mme" = 1\nname = "x"\nquestion = "?"\n')
    assert "\x1b" not in str(error)
    error = _complaint('[study]\nname = "x\\u001b[31m"\nquestion = "?"\n')
    assert "\x1b" not in str(error)


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(StudyError, match="directory"):
        load(tmp_path)
    with pytest.raises(StudyError, match="regular file"):
        load("/dev/zero")
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    with pytest.raises(StudyError, match="regular file"):
        load(fifo)
    (tmp_path / "big.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(StudyError, match="1 MiB"):
        load(tmp_path / "big.toml")


_VALUES = r"""
1 | -1 | 0 | 1.5 | nan | inf | true | "" | "x" | "4 KiB" | [] | ["a", "b"] | [1, [2]] | {} | { label = "l" }
| { "a.b" = 1 } | 1979-05-27 | "\u0000" | [{}] | "{file}"
"""
_KEYS = """
name question why margin alpha knob levels reference role default key kind files operations size only argv step
workload primary level factor condition source text ratio study lab budget fixed response claim set label
"""
_values = st.sampled_from([*(value.strip() for value in _VALUES.split("|")), "0x" + "f" * 4000])
_keys = st.sampled_from(_KEYS.split())
_headers = st.sampled_from(
    ["", "[study]", "[lab]", "[budget]"]
    + [
        f"[[{name}]]"
        for name in ("factor", "fixed", "workload", "response", "claim", "workload.step", "study")
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(_headers, st.dictionaries(_keys, _values, max_size=4)), max_size=6))
def test_no_tables_make_the_reader_raise_anything_but_a_study_error(
    tables: list[tuple[str, dict[str, str]]],
) -> None:
    text = "\n".join(
        "\n".join([header, *(f"{key} = {value}" for key, value in pairs.items())]) for header, pairs in tables
    )
    with contextlib.suppress(StudyError):
        read_study(text, "s.toml", trusted=False)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_a_good_study_makes_the_reader_raise_anything_but_a_study_error(
    data: st.DataObject,
) -> None:
    lines = WHOLE.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "repeat", "value", "splice", "cut"])):
            case "drop":
                del lines[index]
            case "repeat":
                lines.insert(index, lines[data.draw(st.integers(0, len(lines) - 1))])
            case "value" if "=" in lines[index]:
                lines[index] = lines[index].split("=")[0] + "= " + data.draw(_values)
            case "splice":
                at = data.draw(st.integers(0, len(lines[index])))
                lines[index] = lines[index][:at] + data.draw(st.text(max_size=3)) + lines[index][at:]
            case _:
                lines[index] = lines[index][: data.draw(st.integers(0, len(lines[index])))]
    with contextlib.suppress(StudyError):
        read_study("\n".join(lines), "s.toml", trusted=False)


@settings(deadline=None)
@given(st.text())
def test_no_text_makes_the_reader_raise_anything_but_a_study_error(text: str) -> None:
    with pytest.raises(StudyError):
        read_study(text, "s.toml", trusted=False)
