"""The live view of a running trial."""

from __future__ import annotations

import io
import re

import pytest
from report_fixtures import CONDITIONS, all_equivalent, key, study
from rich.console import Console

from iotrial.report.live import (
    PLAIN_MARKS,
    PlainView,
    TerminalView,
    interval_bar,
    live_lines,
    live_view,
    reach_of,
    standing_line,
    verdict_line,
)
from iotrial.report.progress import EffectLine, Narrowing, Progress, WindowLine, blocks_in_words, effect_lines
from iotrial.stats.model import Conclusion
from values import replace


class Clock:
    """Clock that advances only when a test sets it."""

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
        "30 s of 5 min: 136 blocks in 4 conditions, 0 of 4 comparisons decided, 1 void, 2 with a failed run, "
        "widest interval ± 1.8 %",
        "cache cold, size 4 KiB: mode 0444 / 0777 equivalent, 1.001 [0.992, 1.010] after 120 blocks",
        "45 s of 5 min: 136 blocks in 4 conditions, 1 of 4 comparisons decided, 1 void, 2 with a failed run, "
        "widest interval ± 1.8 %",
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
    text = "\n".join(line.plain for line in live_lines(progress(decided=2), width=80, height=9))
    assert "cache warm, size 4 KiB" in text
    assert "cache cold" not in text
    assert "… and 2 more comparisons" in text
    assert "136 complete blocks, 1 void, 2 with a failed run" in text


def test_the_kind_of_view_follows_the_console() -> None:
    assert isinstance(live_view(Console(file=io.StringIO())), PlainView)
    assert isinstance(live_view(Console(file=io.StringIO(), force_terminal=True)), TerminalView)


def test_what_is_said_is_not_read_as_markup() -> None:
    out = io.StringIO()
    PlainView(Console(file=out)).say("making [red]x[/red]\x1b[2J")
    assert out.getvalue() == "making [red]x[/red]\\x1b[2J\n"


def line(low: float | None, value: float | None, high: float | None, **more: object) -> EffectLine:
    return replace(EffectLine("cache warm", "mode", "0444", "0777", value, low, high, 40), **more)  # type: ignore[arg-type]


def bar(one: EffectLine, *, width: int = 13, margin: float = 0.03) -> str:
    return interval_bar(one, width=width, margin=margin, marks=PLAIN_MARKS)


def test_a_bar_shows_the_interval_about_no_difference_with_the_margins() -> None:
    # three margins to each side in six columns: a column is half a margin
    m = 1.03
    assert bar(line(None, None, None)) == "    : | :    "
    assert bar(line(m**-0.5, 1.0, m**0.5)) == "    :=o=:    "
    assert bar(line(m**1.5, m**2, m**3)) == "    : | :=o=="
    assert bar(line(m**-1, m**-1, m**-1)) == "    o | :    "


def test_a_bar_shows_how_far_the_interval_has_narrowed() -> None:
    m = 1.03
    was = {"before_low": m**-2, "before_high": m**2, "before_blocks": 20}
    assert bar(line(m**-0.5, 1.0, m**0.5, **was)) == "  --:=o=:--  "
    assert bar(line(None, None, None, **was)) == "    : | :    "


def test_what_lies_beyond_a_bar_is_an_arrow_at_its_edge() -> None:
    assert bar(line(0.50, 0.53, 0.56)) == "<   : | :    "
    assert bar(line(1.9, 2.0, 2.1)) == "    : | :   >"
    assert bar(line(None, 1.0, 1.03)) == "<=====o==    "
    assert bar(line(0.0, 0.0, 0.0)) == "<   : | :    "
    assert len(bar(line(1e-300, 1e300, None))) == 13


@pytest.mark.parametrize(
    ("ends", "reach"), [((2, 2, 90), 3), ((5, 5, 2), 6), ((11, 90, 10), 12), ((99, 99), 24), ((), 3)]
)
def test_a_bar_reaches_as_far_as_half_of_the_open_intervals_do(ends: tuple[int, ...], reach: int) -> None:
    lines = [line(1.03**-end, 1.0, 1.03) for end in ends]
    assert reach_of([*lines, line(0.01, 1.0, 1.0, verdict="faster"), line(None, 1.0, None)], 0.03) == reach


def test_a_bar_of_a_difference_has_a_scale_of_its_own_and_no_margin() -> None:
    assert bar(line(-100.0, 0.0, 50.0, null=0.0)) == "======o===   "
    assert bar(line(0.0, 0.0, 0.0, null=0.0)) == "      o      "


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 300])
@pytest.mark.parametrize("name", ["0444", "長い" * 30, "x" * 200])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    effects = tuple(
        EffectLine(f"cache {c}", "mode", level, "0777", 1.0, 0.9, 1.1, 40)
        for c in ("cold", name)
        for level in ("0444", name)
    )
    lines = live_lines(replace(progress(), effects=effects, study=name), width=width, height=24)
    assert max(one.cell_len for one in lines) <= width
    assert sum("going on" in one.plain or "…" in one.plain for one in lines) >= 4


def test_one_comparison_in_one_condition_is_named_by_its_row() -> None:
    only = EffectLine("all conditions", "read_ahead_kb", "1024", "128", 1.0, 0.9, 1.1, 40)
    made = replace(progress(), effects=(only,), blocks={"all conditions": 40})
    text = "\n".join(one.plain for one in live_lines(made, width=80, height=24))
    assert "read_ahead_kb 1024 / 128" in text
    assert "all conditions" not in text
    assert standing_line(made).startswith("30 s of 5 min: 40 blocks, ")
    decided = replace(only, verdict="equivalent", conclusion=Conclusion.EQUIVALENT)
    assert verdict_line(decided).startswith("read_ahead_kb 1024 / 128 equivalent, ")


def test_effects_of_several_levels_stand_under_their_condition() -> None:
    effects = tuple(
        EffectLine(f"cache {c}", "mode", level, "0777", 1.0, 0.9, 1.1, 40)
        for c in ("cold", "warm")
        for level in ("0444", "0555")
    )
    body = [
        one.plain.split("  ")[0:2]
        for one in live_lines(replace(progress(), effects=effects), width=80, height=24)
    ]
    assert [one for one in body if one[0].startswith("cache")] == [["cache cold"], ["cache warm"]]
    assert [one[1].strip() for one in body if one[0] == ""] == ["0444 / 0777", "0555 / 0777"] * 2


def test_marks_are_explained_where_there_are_bars_only() -> None:
    wide, narrow = (
        "\n".join(one.plain for one in live_lines(progress(), width=width, height=24)) for width in (80, 50)
    )
    assert "at half the blocks" in wide
    assert "at half the blocks" not in narrow


def test_of_a_thousand_comparisons_as_many_are_shown_as_there_is_room_for() -> None:
    effects = tuple(
        EffectLine(f"size {number}", "mode", level, "0777", 1.0, 0.9, 1.1, 40)
        for number in range(500)
        for level in ("0444", "0555")
    )
    lines = [one.plain for one in live_lines(replace(progress(), effects=effects), width=80, height=24)]
    assert len(lines) <= 24
    hidden = next(int(one.split()[2].replace(",", "")) for one in lines if one.startswith("… and"))
    assert hidden + sum("going on" in one for one in lines) == 1000


class Screen(io.StringIO):
    """Emulates a terminal that reflows its lines when its width changes, as most do."""

    def rows(self, width: int) -> list[str]:
        lines = [""]
        for part in re.split(r"(\r\x1b\[\d+A\x1b\[J|\n)", self.getvalue()):
            if part == "\n":
                lines.append("")
            elif up := re.fullmatch(r"\r\x1b\[(\d+)A\x1b\[J", part):
                left = int(up[1])
                lines.pop()
                while left > 0:
                    gone = lines.pop()
                    left -= max(1, -(-len(gone) // width))
                lines.append("")
            else:
                lines[-1] += re.sub(r"\x1b\[[0-9;]*m", "", part)
        return lines


@pytest.mark.parametrize("narrower", [79, 60, 41])
def test_a_terminal_that_is_made_narrower_keeps_nothing_of_the_old_table(narrower: int) -> None:
    out, clock = Screen(), Clock()
    console = Console(file=out, width=100, height=40, force_terminal=True)
    with TerminalView(console, clock=clock) as view:
        view.say("making the lab")
        view.update(progress())
        console.width = narrower
        clock.now += 1.0
        view.update(progress(elapsed_s=31.0))
        shown_then = out.rows(narrower)
        assert shown_then[0] == "making the lab"
        assert sum("Trial 12" in row for row in shown_then) == 1
        assert "31 s of 5 min" in "".join(shown_then)
    assert out.rows(narrower) == ["making the lab", ""]


def test_what_is_said_stands_above_the_table_and_the_table_follows() -> None:
    out = Screen()
    with TerminalView(Console(file=out, width=80, height=40, force_terminal=True), clock=Clock()) as view:
        view.update(progress())
        view.say("booting it again")
        rows = out.rows(80)
        assert rows[0] == "booting it again"
        assert rows[1].startswith("Trial 12")
    assert out.rows(80) == ["booting it again", ""]


def test_the_cursor_is_never_hidden() -> None:
    out = io.StringIO()
    with TerminalView(Console(file=out, width=80, height=40, force_terminal=True)) as view:
        view.update(progress())
    assert "?25l" not in out.getvalue()


def test_a_terminal_that_cannot_be_drawn_on_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(live_view(Console(file=io.StringIO(), force_terminal=True)), PlainView)


def test_without_colours_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    with TerminalView(Console(file=out, width=80, height=40, force_terminal=True)) as view:
        view.update(progress(decided=1))
    assert not re.search(r"\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|38|48|9[0-7])m", out.getvalue())


def test_an_interval_is_compared_with_what_it_was_at_half_as_many_blocks() -> None:
    narrowing = Narrowing()
    seen = {}
    for blocks in (8, 10, 16, 20, 33, 40):
        one = line(1 - 1 / blocks, 1.0, 1 + 1 / blocks, blocks=blocks)
        seen[blocks] = narrowing.of([one])[0].before_blocks
    assert seen == {8: 0, 10: 0, 16: 8, 20: 10, 33: 16, 40: 20}


def test_an_interval_without_an_end_is_nothing_to_narrow_from() -> None:
    narrowing = Narrowing()
    narrowing.of([line(None, 1.0, None, blocks=4)])
    assert narrowing.of([line(0.9, 1.0, 1.1, blocks=8)])[0].before_blocks == 0


def test_the_widest_interval_in_a_pipe_is_told_with_what_it_was() -> None:
    # half of ln(1.21) is ln 1.1
    one = line(1 / 1.1, 1.0, 1.1, before_low=0.5, before_high=2.0, before_blocks=20)
    said = standing_line(replace(progress(), effects=(one,)))
    assert said.endswith("widest interval ± 10 %, ± 100 % at 20 blocks")
    wide = line(0.1, 1.0, 10.0)
    assert standing_line(replace(progress(), effects=(one, wide))).endswith("widest interval over ± 100 %")


def windows() -> tuple[WindowLine, ...]:
    """Two blocks of a service that is slower with bfq, and a void window."""
    values = [("none", 2.0), ("bfq", 9.0), ("bfq", 8.0), ("none", 3.0), ("none", None)]
    return tuple(
        WindowLine(f"scheduler {name}", 30.0 * number, value, "ms", value is None)
        for number, (name, value) in enumerate(values)
    )


@pytest.mark.parametrize(("plain", "drawn"), [(False, "▁█▇▂x"), (True, "_#*.x")])
def test_the_metric_of_a_service_is_drawn_over_time_with_its_unit_and_the_switches(
    plain: bool, drawn: str
) -> None:
    shown = [
        str(line)
        for line in live_lines(replace(progress(), windows=windows()), width=100, height=40, plain=plain)
    ]
    (line,) = (one for one in shown if one.startswith("windows"))
    (below,) = (one for one in shown if one.startswith("setting"))
    assert line == f"windows  {drawn}  2 ms to 9 ms, newest void"
    assert below == "setting  abbaa  a scheduler none, b scheduler bfq"


def test_a_single_window_has_no_line_over_time() -> None:
    shown = live_lines(replace(progress(), windows=windows()[:1]), width=100, height=40)
    assert not any(str(one).startswith("windows") for one in shown)
