"""Simulated disks in a study: names, custom parameters with units, and refusals with a reason."""

from __future__ import annotations

import pytest

from iotrial.errors import StudyError
from iotrial.lab.simulated_disk import wire
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.disks import MODELS, described, figures_of, parse_disk
from iotrial.study.reader import read_study
from iotrial.study.work import work_of
from iotrial.workloads.stream import StreamWork

BRIEF = """
[study]
name = "brief"
question = "Does the mode matter?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "read"
kind = "files"
operations = ["open", "read", "close"]
"""


def with_disk(text: str) -> str:
    return f"{BRIEF}\n[lab]\ndisk = {text}\n"


@pytest.mark.parametrize("model", MODELS)
def test_every_named_disk_has_all_its_figures_within_their_ranges(model: str) -> None:
    disk = parse_disk(model)
    assert disk is not None
    known = figures_of(model)
    assert set(disk.figures) == set(known)
    assert all(known[key].least <= value <= known[key].most for key, value in disk.figures.items())
    assert described(disk).startswith(f"{model}: ")


def test_figures_are_kept_in_seconds_and_bytes_and_reach_the_probe_in_its_units() -> None:
    disk = parse_disk(
        {"model": "disk-7200", "seek_mean": "9 ms", "rate_outer": "150 MB/s", "write_cache": "none", "queue": 4,
         "order": "elevator", "stroke": "10 %"}
    )  # fmt: skip
    assert disk is not None
    assert disk.changed == ("seek_mean", "rate_outer", "write_cache", "queue", "order", "stroke")
    sent = wire(disk)["rotating"]
    assert sent["seek_mean_us"] == pytest.approx(9000.0)
    assert sent["outer_bytes_per_s"] == 150e6
    assert (sent["cache_bytes"], sent["depth"], sent["order"]) == (0, 4, "elevator")
    assert sent["stroke"] == pytest.approx(0.1)


def test_only_a_disk_that_collects_garbage_has_the_figures_of_its_flash() -> None:
    plain, collecting = (
        parse_disk("ssd-sata"),
        parse_disk({"model": "ssd-2009", "erase_block": "1 MiB", "spare": "25 %"}),
    )
    assert plain is not None
    assert collecting is not None
    assert "collects" not in wire(plain)["flat"]
    sent = wire(collecting)["flat"]["collects"]
    assert (sent["block_bytes"], sent["spare"]) == (1 << 20, 0.25)
    assert (sent["page_move_us"], sent["erase_us"]) == (pytest.approx(60.0), pytest.approx(500.0))
    with pytest.raises(StudyError, match=r"rate_read: expected 0\.01 MB/s to 100000 MB/s, found 200000 MB/s"):
        read_study(with_disk('{ model = "ssd-sata", rate_read = "200 GB/s" }'), "mine", trusted=True)
    with pytest.raises(StudyError, match="no parameter of ssd-sata is called"):
        read_study(with_disk('{ model = "ssd-sata", spare = "7 %" }'), "mine", trusted=True)


def test_a_study_keeps_every_figure_of_its_disk_when_it_is_stored() -> None:
    study = read_study(with_disk('{ model = "usb-stick", jump = "5 ms" }'), "mine", trusted=True)
    assert study.lab.disk is not None
    assert study.lab.disk.figures["jump"] == pytest.approx(0.005)
    assert study_from_json(study_to_json(study)).lab.disk == study.lab.disk
    assert read_study(with_disk('"none"'), "mine", trusted=True).lab.disk is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"disk-1"', "known: disk-15000, disk-7200"),
        ("7200", "expected the name"),
        ('{ queue = 1 }', "expected the name"),
        ('{ model = "disk-7200", read_latency = "1 ms" }', "no parameter of disk-7200 is called"),
        ('{ model = "ssd-sata", order = "nearest" }', "no parameter of ssd-sata is called"),
        ('{ model = "disk-7200", seek_mean = "17 ms" }', "no increasing curve fits"),
        ('{ model = "disk-7200", seek_mean = 8 }', "with a unit"),
        ('{ model = "disk-7200", rate_inner = "170 MB" }', "no more than rate_outer"),
        ('{ model = "disk-7200", queue = 1.5 }', "whole number"),
        ('{ model = "disk-7200", queue = 0 }', "expected 1 to 1024"),
        ('{ model = "disk-7200", order = "backwards" }', "expected one of arrival"),
        ('{ model = "disk-7200", stroke = "0 %" }', "disk stroke"),
    ],
)  # fmt: skip
def test_what_is_no_disk_is_an_error_that_says_why(text: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        read_study(with_disk(text), "mine", trusted=True)
    assert message in str(caught.value)


def test_a_position_is_a_share_of_a_device() -> None:
    keys = {"operation": "read", "on": "device"}
    assert work_of(StreamWork, {**keys, "position": "25 %"}).position == 0.25
    for wrong in ("100 %", "-1 %", "1 MiB"):
        with pytest.raises(ValueError, match="position"):
            work_of(StreamWork, {**keys, "position": wrong})
