"""What a run does, in the words of the plan: on how many files, and of which sizes."""

from factorials import reading, study

from iotrial.report.document import work_in_words
from iotrial.study.model import Factor, Level, Role, Setting


def _sizes(*values: str) -> Factor:
    levels = tuple(Level(value, (Setting("file.size", value),)) for value in values)
    return Factor("size", Role.CONDITION, levels, reference=values[0], default=values)


def test_files_have_the_sizes_that_a_condition_gives_them() -> None:
    work = reading(files=20, pool=20, size_bytes=4096)
    assert work_in_words(work, study()).endswith(" on 20 files of 4 KiB a run")
    assert work_in_words(work, study(_sizes("10 KiB"))).endswith(" on 20 files of 10 KiB a run")
    assert work_in_words(work, study(_sizes("4 KiB", "1048576", "64 KiB"))).endswith(
        " on 20 files of 4 KiB to 1 MiB a run"
    )


def test_an_empty_file_is_not_named() -> None:
    assert " on 1 file of 1 B a run" in work_in_words(reading(files=1, pool=1, size_bytes=1), study())
    assert " a run" not in work_in_words(reading(files=1, pool=1, size_bytes=0), study())
