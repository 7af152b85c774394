"""Whether a run had a request to the lab's device, by its counters."""

from __future__ import annotations

import pytest

from iotrial.runner.touched import had_request


@pytest.mark.parametrize(
    ("evidence", "used"),
    [
        ({}, True),
        ({"cpu": 1.0}, True),
        ({"device_read_ios": 0.0, "device_write_ios": 0.0}, False),
        ({"device_read_ios": 0.0, "device_write_ios": 2.0}, True),
        ({"device_read_ios": 0.0, "disks_read_ios": 40.0}, True),
        ({"device_read_ios": 0.0, "disks_read_ios": 0.0}, False),
        ({"device_read_bytes": 4096.0, "device_read_ios": 0.0}, False),
    ],
)
def test_a_request_to_the_device_or_to_a_disk_of_its_array_is_use(
    evidence: dict[str, float], used: bool
) -> None:
    assert had_request(evidence) is used
