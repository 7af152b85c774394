"""``iotrial compare``: compare several trials side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iotrial.cli.finish import (
    EXIT_FAIL_IF,
    refuse_twice_on_standard_output,
    refuse_unwritable,
    write_markdown,
    write_report,
)
from iotrial.cli.open_store import is_packed, store_to_read
from iotrial.cli.options import force_option, full_report, json_option, markdown_option, page_option
from iotrial.cli.output import tell
from iotrial.errors import RequestError, twice
from iotrial.report.comparing import compare, refuse_too_few
from iotrial.report.comparison_blocks import comparison_html, comparison_markdown, comparison_report
from iotrial.report.comparison_json import comparison_json
from iotrial.report.opening import packed_summary, summary_of
from iotrial.report.text import Console, print_blocks
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.report.analysed import Analysed
    from iotrial.report.comparison import Comparison
    from iotrial.store import Store


@click.command("compare")
@click.argument("trials", nargs=-1, required=True, metavar="TRIAL TRIAL...")
@full_report
@page_option
@markdown_option
@force_option
@click.option(
    "--fail-if",
    type=click.Choice(["differs"]),
    multiple=True,
    help="Exit with status 4 if an effect differs between the trials.",
)
@json_option
def command(
    trials: tuple[str, ...],
    full: bool,
    html: str | None,
    markdown: str | None,
    force: bool,
    fail_if: tuple[str, ...],
    as_json: bool,
) -> int:
    """Compare trials side by side: stored ones (number, id, "last") and packed ones (files).

    The same study on several machines, disks, kernels or dates: where does its effect differ? Every trial is analysed at
    a part of its alpha, so that all intervals hold together.
    """
    refuse_twice_on_standard_output(markdown, as_json=as_json)
    refuse_unwritable(html, markdown, force=force)
    found, names = gathered(trials)
    comparison = compare(found, names=names)
    on_standard_output = False
    if markdown:
        on_standard_output = write_markdown(comparison_markdown(comparison), markdown, force=force)
    if html:
        write_report(comparison_html(comparison), Path(html), force=force)
    if not on_standard_output:
        _say(comparison, as_json=as_json, html=html, full=full)
    return EXIT_FAIL_IF if fail_if and any(row.apart for row in comparison.rows) else 0


def gathered(refs: Sequence[str]) -> tuple[list[Analysed], dict[str, str]]:
    """Analyse the named trials, each at its share of alpha. Also return the names of those that are files, by
    id.

    Raises RequestError, before any analysis, if too few trials are named or one is named twice; StoreError
    and PackedError.
    """
    refuse_too_few(len(refs))
    files = {ref for ref in refs if is_packed(ref)}
    store = store_to_read(needed=len(files) < len(set(refs)))
    share = len(refs)
    found: list[Analysed] = []
    names: dict[str, str] = {}
    try:
        _refuse_twice(refs, files, store)
        for number, ref in enumerate(refs, start=1):
            if sys.stderr.isatty():
                tell(f"analysing {escape(Path(ref).name)} ({number} of {share})", err=True)
            if ref in files:
                path = Path(ref).expanduser()
                one = packed_summary(path, share=share)
                names[one.id] = escape(path.name)
            else:
                assert store is not None
                one = summary_of(store, ref, share=share)
            found.append(one)
    finally:
        if store is not None:
            store.close()
    return found, names


def _refuse_twice(refs: Sequence[str], files: set[str], store: Store | None) -> None:
    """Refuse the obvious duplicates before minutes of analysis. Two files with the same trial are found
    later."""
    seen: dict[str, str] = {}
    for ref in refs:
        one = (
            str(Path(ref).expanduser().resolve())
            if ref in files or store is None
            else store.find(ref).header.id
        )
        if one in seen:
            also = "" if seen[one] == ref else f' (as "{escape(seen[one])}" too)'
            raise RequestError(twice("trial", escape(ref)) + also)
        seen[one] = ref


def _say(comparison: Comparison, *, as_json: bool, html: str | None, full: bool) -> None:
    if as_json:
        click.echo(json.dumps(comparison_json(comparison), indent=1, allow_nan=False))
        return
    print_blocks(comparison_report(comparison, html_path=html), Console(file=sys.stdout), full=full)
