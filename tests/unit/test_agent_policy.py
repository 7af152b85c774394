"""What the policy of ``iotrial mcp`` allows an agent, and what no policy allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_choice import FASTER, found, of

from iotrial.cli.agent_policy import Applying, Policy, Work, read_policy
from iotrial.errors import IotrialError, RequestError
from iotrial.knobs.declaration import Safety
from iotrial.tune.choice import Choice, choices
from values import replace

TEXT = """\
folders = ["{folder}"]
trial = "30 s"
total = "1 min"

[knobs]
"block.read_ahead_kb" = ["128", "1024"]
"vm.swappiness" = ["60", "10"]

[work.search]
command = ["grep", "-r", "error", "."]
cache = "cold"

[apply]
allowed = true
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    (tmp_path / "data").mkdir()
    path = tmp_path / "policy.toml"
    path.write_text(TEXT.format(folder=tmp_path / "data"))
    return read_policy(path)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_levels_become_the_words_of_try(policy: Policy) -> None:
    assert policy.words({"block.read_ahead_kb": ["128", "1024"], "vm.swappiness": ["60", "10"]}) == [
        "block.read_ahead_kb=128,1024",
        "vm.swappiness=60,10",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block.scheduler": ["none", "bfq"]},
        {"read_ahead_kb": ["128", "1024"]},
        {"block.read_ahead_kb": ["128", "2048"]},
        {"block.read_ahead_kb": ["128,4096"]},
        {"--yes": ["128"]},
        {"--in=/etc block.read_ahead_kb": ["128"]},
        {"block.read_ahead_kb": ["128", "1024 --in /etc"]},
    ],
)
def test_what_the_policy_does_not_name_is_refused(policy: Policy, settings: dict[str, list[str]]) -> None:
    with pytest.raises(RequestError):
        policy.words(settings)


def test_a_folder_is_below_those_of_the_policy_whatever_links_say(policy: Policy, tmp_path: Path) -> None:
    below = tmp_path / "data" / "below"
    below.mkdir()
    assert policy.folder(str(below)) == str(below)
    (tmp_path / "data" / "out").symlink_to("/etc")
    for name in ("/etc", f"{tmp_path}/data/out", f"{tmp_path}/data/../other", f"{tmp_path}/data2", "/"):
        with pytest.raises(RequestError, match="is not in the policy"):
            policy.folder(name)


def test_the_time_of_a_trial_and_of_a_session_is_limited(policy: Policy) -> None:
    assert policy.time_s(None, 0.0) == 30.0
    assert policy.time_s(5.0, 55.0) == 5.0
    for wanted, spent in ((31.0, 0.0), (0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (10.0, 55.0)):
        with pytest.raises(RequestError):
            policy.time_s(wanted, spent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("folders = 3", "Expected"),
        ("folder = []", "unknown field"),
        ('folders = ["data"]', "absolute path"),
        ('[knobs]\n"block.nothing" = ["1"]', "block.nothing"),
        ('[knobs]\n"mount.option" = ["nobarrier"]', "puts data at risk"),
        ('[knobs]\n"block.read_ahead_kb" = ["128,256"]', "comma"),
        ('trial = "soon"', "soon"),
        ('total = "30 d"', "24 h"),
        ("[work.x]\ncommand = []", "length"),
        ("not toml", "policy"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_an_error_that_names_the_file(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(IotrialError) as caught:
        read_policy(written(tmp_path, text))
    assert "policy.toml" in caught.value.message
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_a_policy_that_others_can_write_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.chmod(0o666)
    with pytest.raises(IotrialError, match="writable"):
        read_policy(path)
    with pytest.raises(IotrialError, match="no such file"):
        read_policy(tmp_path / "missing.toml")


def _choice(**changes: object) -> Choice:
    (first, *_) = choices(of(found(FASTER)))
    return replace(first, **{"knob": "block.read_ahead_kb", "options": {}, "value": "1024", **changes})


def test_only_settings_of_the_policy_that_put_nothing_at_risk_are_applied(policy: Policy) -> None:
    policy.check_apply([_choice(safety=Safety.TRADE_OFF)])
    policy.check_apply(
        [_choice(knob="sysctl", options={"key": "vm.swappiness"}, value="10", safety=Safety.HARMLESS)]
    )
    for changes in (
        {"value": "4096"},
        {"knob": "block.scheduler", "value": "none"},
        {"knob": "sysctl", "options": {"key": "vm.dirty_ratio"}, "value": "10"},
        {"safety": Safety.DATA_AT_RISK},
        {"safety": Safety.NOT_JUDGED},
    ):
        with pytest.raises(RequestError):
            policy.check_apply([_choice(safety=Safety.HARMLESS) if not changes else _choice(**changes)])


def test_an_empty_policy_allows_nothing() -> None:
    nothing = Policy()
    for refused in (
        lambda: nothing.folder("/tmp"),
        lambda: nothing.work_named("search"),
        lambda: nothing.words({"vm.swappiness": ["60", "10"]}),
        lambda: nothing.check_apply([]),
    ):
        with pytest.raises(RequestError):
            refused()
    assert Applying() == Applying(allowed=False, within="10 min", keep=False)
    assert Work(("true",)).cache == "as-is"
