"""Words and units of the metrics that runs record in addition to their responses.

Metrics of the whole machine are always marked as such: they include the activity of other processes.
"""

from __future__ import annotations

import re

from iotrial.report.phrases import spoken

SYSTEM_WIDE = "system-wide: "
#: of a counter that goes on until the data of the run is synced
SYNCED = "_synced"

# Units by a counter's name; the first pattern found applies.
_UNITS = (
    (re.compile(r"^energy"), "J"),
    (
        re.compile(
            r"^io_wait|^device_busy$|^nas_busy$|^behind_share$|^disks_.*_share_most$|^stream_fairness$"
        ),
        "%",
    ),
    (re.compile(r"^device_depth$"), "requests"),
    (re.compile(r"^stream_.*rate$"), "bytes/s"),
    (re.compile(r"bytes|rss|_memory$"), "bytes"),
    (re.compile(r"_ns$"), "ns"),
    (re.compile(r"_us$"), "us"),
    (re.compile(r"_ms$"), "ms"),
    (
        re.compile(
            r"_s$|_seconds$|(?<!_by)_time(_synced)?$|^wall\b|^cpu\b|^user$|^sys$|^accounted_(time|request_p\d+)\.|^late_|_p\d+$|^server_(cpu|user|sys)$|_cpu$|^nas_(interrupts|sync)$"
        ),
        "s",
    ),
)

_WORDS = {
    "device_read_bytes": "bytes read from the device",
    "device_write_bytes": "bytes written to the device",
    "device_read_ios": "read requests of the device",
    "device_write_ios": "write requests of the device",
    "device_read_merges": "reads merged into others",
    "device_write_merges": "writes merged into others",
    "device_flush_ios": "cache flushes of the device",
    "device_discard_ios": "discards of the device",
    "device_discard_bytes": "bytes discarded",
    "device_read_time": "time of all reads in the device, summed",
    "device_write_time": "time of all writes in the device, summed",
    "device_flush_time": "time of all flushes in the device, summed",
    "device_discard_time": "time of all discards in the device, summed",
    "device_queue_time": "time of all requests in the queue, summed",
    "device_busy_time": "time the device was busy",
    "device_inodes_dirtied": "dirty inodes left on the device",
    "device_inodes_dirtied_by_time": "inodes left with only a dirty timestamp",
    "device_dirtied_bytes": "page cache dirtied for the device",
    "device_written_back_bytes": "page cache written back to the device",
    "device_busy": "share of the time the device was busy",
    "disks_read_share_most": "share of the bytes read from the most used disk",
    "disks_write_share_most": "share of the bytes written to the most used disk",
    "device_depth": "mean requests in flight on the device",
    "system_cpu": "processor time, kernel threads included",
    "io_wait": "processors idle while waiting for I/O",
    "io_wait_most": "the same, of the processor that waited most",
    "stream_fairness": "fairness between streams (Jain’s index)",
    "stream_slowest_rate": "rate of the slowest stream",
    "stream_fastest_rate": "rate of the fastest stream",
    "stream_sum_of_own_rate": "sum of the streams’ own rates (never reached together)",
    "work_read_bytes": "bytes requested by the work’s reads",
    "work_written_bytes": "bytes passed to the work’s writes",
    "work_read_calls": "read calls of the work",
    "work_write_calls": "write calls of the work",
    "work_fetched_bytes": "bytes fetched from devices for the work",
    "cache_kept_bytes": "bytes of the files that eviction left in memory",
    "work_elsewhere_bytes": "bytes that the work read from or wrote to other devices",
    "work_dirtied_bytes": "bytes dirtied by the work",
    "work_undirtied_bytes": "dirty bytes of the work discarded",
    "work_cache_hit_bytes": "bytes read by calls and not fetched from devices",
    "system_read_bytes": "bytes read from devices",
    "system_written_bytes": "bytes written to devices",
    "system_faults_major": "major page faults",
    "system_pages_refaulted": "pages read again soon after eviction (refaults)",
    "system_pages_scanned_directly": "pages scanned by direct reclaim",
    "system_pages_dirty_more": "change of dirty pages",
    "system_pages_under_write_back_more": "change of pages being written back",
    "system_pages_cached_more": "change of pages in the page cache",
    "system_io_pressure_some_time": "time in which some task waited for I/O",
    "system_io_pressure_full_time": "time in which every task waited for I/O",
    "system_cpu_pressure_some_time": "time in which some task waited for a processor",
    "system_cpu_pressure_full_time": "time in which every task waited for a processor",
    "system_memory_pressure_some_time": "time in which some task waited for memory",
    "system_memory_pressure_full_time": "time in which every task waited for memory",
    "server_cpu": "processor time of the server",
    "server_user": "of this, in user mode",
    "server_sys": "of this, in the kernel",
    "server_fetched_bytes": "bytes fetched from devices for the server",
    "server_dirtied_bytes": "bytes dirtied by the server",
    "server_read_bytes": "bytes requested by the server’s reads",
    "server_written_bytes": "bytes passed to the server’s writes",
    "server_read_calls": "read calls of the server",
    "server_write_calls": "write calls of the server",
    "server_resident_bytes": "memory of the server, shared pages once",
    "server_huge_bytes": "huge pages of the server’s largest process",
    "server_processes": "processes of the server",
    "server_faults_minor": "minor page faults of the server",
    "server_faults_major": "major page faults of the server",
    "nas_cpu": "processor time of the serving machine",
    "nas_interrupts": "of this, in interrupts and packets",
    "nas_busy": "share of the time that it was busy",
    "nas_sync": "time of its sync after the run",
    "wall_to_disk": "time until all data are on its disk",
    "link_to_server_bytes": "bytes sent to the server",
    "link_from_server_bytes": "bytes received from the server",
    "link_to_server_packets": "packets sent to the server",
    "link_from_server_packets": "packets received from the server",
    "link_interrupts": "interrupts of the server’s network card",
    "late_p50": "start delay of operations, median",
    "late_p99": "start delay of operations, 99th percentile",
    "late_p999": "start delay of operations, 99.9th percentile",
    "late_max": "start delay of operations, largest",
    "behind_share": "operations that started more than 10 ms late",
    "other_results": "operations with another result than recorded",
    "replay_read_bytes": "bytes read by the replay",
    "replay_written_bytes": "bytes written by the replay",
    "replay_lost": "operations that the recording lacks",
    "burst_reads": "consecutive reads of one file",
    "burst_changes": "changes of its access time during them",
    "burst_ticks": "clock ticks during them",
    "extents": "extents of the files on the disk",
    "extents_before": "extents of the files before they were defragmented or copied",
    "relayout_time": "time to defragment or copy the files before the run",
    "trimmed_bytes": "free bytes discarded before the run",
    "energy": "energy of processors and memory, by their own meters",
    "energy_metered": "energy, by the meter",
    "faults_minor": "minor page faults",
    "faults_major": "major page faults",
    "switches_voluntary": "voluntary context switches",
    "switches_involuntary": "involuntary context switches",
}


# The lab's device in repetitions that were traced and not timed; the kind of request is filled in.
_REQUESTS = {
    "accounted_requests": "accounted: {} requests of the device",
    "accounted_request_p50": "accounted: half of the {} requests took at most",
    "accounted_request_p99": "accounted: 99 % of the {} requests took at most",
}


def words_of(metric: str) -> str:
    """Return the metric in words; a response keeps its own name."""
    name, _, kind = metric.partition(".")
    if name in _REQUESTS:
        return _REQUESTS[name].format(spoken(kind))
    plain = metric.removesuffix(SYNCED)
    words = _WORDS.get(plain)
    if words is None and plain.startswith("log_"):
        words = _WORDS.get(f"device_{plain.removeprefix('log_')}", spoken(plain)).replace(
            "the device", "the log’s device"
        )
    if words is None and plain.startswith("disks_"):
        words = _WORDS.get(f"device_{plain.removeprefix('disks_')}", spoken(plain)).replace(
            "the device", "the array’s disks"
        )
    if words is None:
        system = plain.startswith("system_")
        words = spoken(plain.removeprefix("system_") if system else plain)
    after = ", until synced" if plain != metric else ""
    return f"{SYSTEM_WIDE if is_system_wide(plain) else ''}{words}{after}"


def is_system_wide(metric: str) -> bool:
    """Return whether the metric includes other activity on the machine."""
    return metric.startswith(("system_", "energy", "io_wait"))


def is_counter(metric: str) -> bool:
    """Return whether the metric belongs to the accounting around a run; tables omit such metrics if nothing was counted."""
    return metric.startswith(
        ("device_", "log_", "disks_", "beside_", "work_", "system_", "io_wait", "link_", "nas_")
    )


def is_accounted_request(metric: str) -> bool:
    """Return whether the metric is about the requests of accounted repetitions.

    There are too few to show that a time has moved. The number of requests can be tested with the device's own
    counters, which every run has.
    """
    return metric.partition(".")[0] in _REQUESTS


def unit_of(metric: str) -> str:
    """Return the unit implied by a counter's name; "1" for a plain count."""
    return next((unit for pattern, unit in _UNITS if pattern.search(metric)), "1")
