"""A page that iotrial makes as a file, with a bar above it that leads on; its own content security policy is kept."""

from __future__ import annotations

import re
from html import unescape

from iotrial.serve.rendering import page as rendered
from iotrial.serve.rendering import said_page
from iotrial.serve.reply import Reply

REFRESH_S, QUIET_REFRESH_S = 2, 10
_BODY = re.compile(r"<body\b[^>]*>")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_QUIET = "A trial is running, and analysing beside it would disturb it. This page goes on when it has ended."
_BUSY = "It is analysed and drawn; of a large trial that takes a while. This page goes on by itself."


def dressed(html: str, **bar: object) -> Reply:
    """The file's page with the bar (values of ``bar.html.j2``) at its top."""
    above = rendered("bar.html.j2", **bar).decode()
    policy = _POLICY.search(html)
    text = _BODY.sub(lambda body: body[0] + above, html, count=1)
    headers = {} if policy is None else {"content-security-policy": unescape(policy[1])}
    return Reply(text.encode("utf-8", "replace"), headers=headers)


def later(what: str, *, measuring: bool, saved: bool = False) -> Reply:
    """In place of what is not there yet; asks again by itself. ``saved``: a file was asked for, which this is not."""
    title = f"{what} has not been looked at yet" if measuring else f"{what} is being looked at"
    wait = QUIET_REFRESH_S if measuring else REFRESH_S
    body = said_page(title, _QUIET if measuring else _BUSY, refresh=wait)
    return Reply(body, status=503 if saved else 202, headers={"retry-after": str(wait)})
