"""The machine's clock is set back by an hour in the middle of a trial.

Only the conductor sees it: a small library, loaded before the C library, shifts CLOCK_REALTIME once a file
exists. The monotonic clock and the probe (which is static) are not affected, just as setting a clock does not
affect the monotonic clock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from math import ceil
from pathlib import Path

import pytest
from breaking import Trial, command_study, iotrial, last_trial, nothing_left, report_of
from running import stored_runs

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

HOUR = 3600
SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int shifted(void) {
    const char *path = getenv("SHIFT_WHEN");
    return path && access(path, F_OK) == 0;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if ((clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && shifted()) now->tv_sec -= 3600;
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    tv->tv_sec = now.tv_sec;
    tv->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""
QUICK = ["test", "-n", "{word}"]


@pytest.fixture
def shifting(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """Return the environment of a conductor with a clock that is set back when a file is created, and that
    file."""
    (tmp_path / "shift.c").write_text(SHIFT)
    library, when = tmp_path / "shift.so", tmp_path / "now"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "shift.c"), "-ldl"], check=True
    )
    return {**os.environ, "LD_PRELOAD": str(library), "SHIFT_WHEN": str(when)}, when


@pytest.mark.long
def test_a_clock_that_is_set_back_does_not_touch_a_trial(
    state: Path, tmp_path: Path, shifting: tuple[dict[str, str], Path]
) -> None:
    environment, when = shifting
    trial = Trial(state, command_study(tmp_path, QUICK, blocks=100), "--no-stop", "--json", env=environment)
    trial.until_runs(10)
    when.touch()
    status, out, err = trial.end()
    assert status in (0, 3, 6), err
    report = report_of(out)
    assert report["trial"]["state"] in ("done", "invalid")
    assert 0 <= report["trial"]["duration_s"] < HOUR
    runs = stored_runs(state)
    # two controls in each of the first 24 blocks, then in every second block: no run was left out
    assert len(runs) == 100 * 2 + (24 + 38) * 2
    started = [run["started_s"] for run in runs]
    assert started == sorted(started)
    assert 0 <= started[0] <= started[-1] < HOUR
    nothing_left(state)


@pytest.mark.long
def test_after_sigkill_and_a_clock_set_back_the_budget_counts_what_was_spent(
    state: Path, tmp_path: Path, shifting: tuple[dict[str, str], Path]
) -> None:
    environment, when = shifting
    study = command_study(tmp_path, QUICK, blocks=100_000)
    trial = Trial(state, study, "--no-stop", "--time", "10min", env=environment)
    trial.until_runs(10)
    when.touch()
    trial.until_runs(trial.runs + 8)
    trial.process.kill()
    trial.process.communicate()
    spent = max(run["started_s"] for run in stored_runs(state))
    before = len(stored_runs(state))
    assert last_trial()["duration_s"] >= 0
    assert iotrial("restore").returncode == 0
    budget = ceil(spent) + 2
    done = iotrial("resume", "--json", "--time", f"{budget}s", env=environment)
    assert done.returncode in (0, 3, 6), done.stderr
    later = [run["started_s"] for run in stored_runs(state)[before:]]
    assert spent <= min(later)
    # the budget was checked just before that run began
    assert max(later) <= budget + 0.1
    assert report_of(done.stdout)["trial"]["duration_s"] >= spent
    nothing_left(state)
