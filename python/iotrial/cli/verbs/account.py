"""``iotrial account``: what was asked on this machine, what is kept, and what may be."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.kept_settings import account_here
from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, Probability, json_text
from iotrial.report.notation import counted, percent
from iotrial.stats.account import LEVEL
from iotrial.terminal import escape
from iotrial.tune.account import Account, Line, Standing, e_value_in_words


class Accounted(JsonDocument, frozen=True):
    """iotrial account --json"""

    level: Annotated[
        Probability,
        Meta(description="expected share of what is kept within the account that does nothing, at most"),
    ]
    next_needed: Annotated[float, Meta(description="the e-value that a question which is asked next needs")]
    questions: list[Line]


@click.command("account")
@json_option
def command(as_json: bool) -> None:
    """Show the account of errors over everything that was tried here.

    Each level that a trial compares with its reference is a question. Of the settings that are kept within the account,
    at most 5 % are expected to do nothing, however many were tried, in whichever order, and whenever each trial was
    stopped.
    """
    account = account_here()
    if as_json:
        click.echo(json_text(Accounted(LEVEL, account.next_needed, list(account.lines))))
        return
    if not account.lines:
        tell("Nothing was asked yet. Each trial asks whether its levels are better than the reference.")
        return
    tell(_summary(account), fold=0)
    tell("")
    for line in account.lines:
        _show(line)


def _summary(account: Account) -> str:
    standings = [line.standing for line in account.lines]
    kept, beyond, enough = (standings.count(one) for one in (Standing.KEPT, Standing.BEYOND, Standing.ENOUGH))
    first = "Nothing is kept within the account."
    if kept:
        share = f"at most {percent(LEVEL)} are expected to do nothing"
        first = f"Of {counted(kept, 'setting')} kept within the account, {share}."
    rest = [f"{counted(len(standings), 'question')} asked"]
    if beyond:
        rest.append(f"{beyond} kept beyond the account, of which it says nothing")
    if enough:
        rest.append(f"{enough} may be kept")
    limit = e_value_in_words(account.next_needed)
    return f"{first}\n{'; '.join(rest)}. The next question needs an e-value of {limit}."


def _show(line: Line) -> None:
    where = "trial gone" if line.number is None else f"trial {line.number}"
    against = f" vs {escape(line.reference)}" if line.reference else ""
    numbers = f"e-value {e_value_in_words(line.e_value)}, needs {e_value_in_words(line.needed)}"
    tell(f"{line.place:>4}  {where}: {line.name}{against}: {numbers}: {line.standing}", fold=6)
