"""The view of a running trial."""

from __future__ import annotations

import io
from dataclasses import replace

from report_fixtures import CONDITIONS, all_equivalent, key, study
from rich.console import Console

from iotrial.report.live import PlainView, TerminalView, live_view, progress_table
from iotrial.report.progress import Progress, blocks_in_words, effect_lines


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(*, decided: int = 0, elapsed_s: float = 30.0) -> Progress:
    effects = [replace(one, decided=i < decided) for i, one in enumerate(all_equivalent())]
    blocks = blocks_in_words({key(condition): 34 for condition in CONDITIONS}, study())
    return Progress(12, "files/permissions", elapsed_s, 300.0, blocks, 1, 2, effect_lines(effects, study()))


def test_only_a_decided_effect_has_a_verdict() -> None:
    lines = progress(decided=1).effects
    assert [line.verdict for line in lines] == ["equivalent", None, None, None]
    assert (lines[0].condition, lines[0].comparison) == ("cache cold, size 4 KiB", "mode 0444 / 0777")


def test_a_pipe_gets_a_line_now_and_then_and_one_for_each_new_verdict() -> None:
    out, clock = io.StringIO(), Clock()
    with PlainView(Console(file=out, width=80), clock=clock) as view:
        view.update(progress())
        for _ in range(50):
            clock.now += 0.1
            view.update(progress())
        view.update(progress(decided=1))
        clock.now += 10.0
        view.update(progress(decided=1, elapsed_s=45.0))
    assert out.getvalue().splitlines() == [
        "30 s of 5 min: 136 blocks in 4 conditions, 0 of 4 comparisons decided, 1 void, 2 runs failed",
        "cache cold, size 4 KiB: mode 0444 / 0777 equivalent, 1.001 [0.992, 1.010] after 120 blocks",
        "45 s of 5 min: 136 blocks in 4 conditions, 1 of 4 comparisons decided, 1 void, 2 runs failed",
    ]


def test_a_terminal_is_drawn_at_most_four_times_a_second() -> None:
    out, clock = io.StringIO(), Clock()
    view = TerminalView(Console(file=out, width=80, height=30, force_terminal=True), clock=clock)
    with view:
        drawn = []
        for _ in range(100):
            before = len(out.getvalue())
            view.update(progress())
            drawn.append(len(out.getvalue()) > before)
            clock.now += 0.01
    assert sum(drawn) == 4
    assert "equivalent" not in out.getvalue()
    assert "going on" in out.getvalue()


def test_a_terminal_draws_what_it_skipped_at_the_end() -> None:
    out, clock = io.StringIO(), Clock()
    with TerminalView(Console(file=out, width=80, height=30, force_terminal=True), clock=clock) as view:
        view.update(progress())
        view.update(progress(decided=1))
        assert "equivalent" not in out.getvalue()
    assert "equivalent" in out.getvalue()


def test_where_there_is_no_room_undecided_effects_come_first() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(progress_table(progress(decided=2), most_rows=2))
    text = out.getvalue()
    assert "cache warm, size 4 KiB" in text
    assert "cache cold" not in text
    assert "… and 2 more comparisons" in text
    assert "136 complete blocks, 1 void, 2 runs failed" in text


def test_the_kind_of_view_follows_the_console() -> None:
    assert isinstance(live_view(Console(file=io.StringIO())), PlainView)
    assert isinstance(live_view(Console(file=io.StringIO(), force_terminal=True)), TerminalView)


def test_what_is_said_is_not_read_as_markup() -> None:
    out = io.StringIO()
    PlainView(Console(file=out)).say("making [red]x[/red]\x1b[2J")
    assert out.getvalue() == "making [red]x[/red]\\x1b[2J\n"
