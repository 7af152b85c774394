"""What users install: the wheel with and without root, the Debian package, the steps of the GitHub action.

Everything is in one file, so that one worker builds the wheel and fetches its dependencies once. Packages come from the
package index that pip is configured for; later installations use the fetched files alone.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from elftools.elf.elffile import ELFFile

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / "docs/catalogue/nas/nfs.iotrial"
LARGEST_MB = 130
NOBODY = 65534
#: a plain user's programs; compilers are hidden by the fixture ``plain_path``
DEBIAN_PYTHON = Path("/usr/bin/python3")
#: what the wheel puts below the environment, besides programs and packages
SHARED = {
    "lib/systemd/system/iotrial-applied-check.service",
    "lib/systemd/system/iotrial-applied-check.timer",
    "lib/systemd/system/iotrial-live@.service",
    "share/bash-completion/completions/iotrial",
    "share/fish/vendor_completions.d/iotrial.fish",
    "share/man/man1/iotrial.1",
    "share/zsh/site-functions/_iotrial",
}
COMPILERS = ("cc", "gcc", "g++", "c++", "cargo", "rustc", "ld", "make")


def run(*argv: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(one) for one in argv],
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        **options,
    )
    assert not check or done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a folder on disk that any user may read."""
    made = Path(tempfile.mkdtemp(prefix="iotrial-packaging-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """Return the wheel as scripts/wheel builds it, in the folder with all packages that it needs."""
    built = Path(run(ROOT / "scripts/wheel", sys.executable).stdout.strip())
    wheels, fetching = folder / "wheels", folder / "fetching"
    run(python_with_venv(), "-m", "venv", fetching)
    run(fetching / "bin/python", "-m", "pip", "wheel", "-q", "--only-binary", ":all:", "-w", wheels, built)
    for file in wheels.iterdir():
        file.chmod(0o644)
    return wheels / built.name


@pytest.fixture(scope="module")
def plain_path(folder: Path) -> str:
    """Return a PATH with the programs of /usr/bin and /bin except compilers."""
    programs = folder / "programs"
    programs.mkdir()
    for place in (Path("/bin"), Path("/usr/bin")):
        for program in place.iterdir():
            if program.name.partition("-")[0] not in COMPILERS and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    return str(programs)


def environment(path: str, home: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG", "LC_"))
    }
    return {**kept, "PATH": path, "HOME": str(home), "TMPDIR": str(home), "PIP_NO_CACHE_DIR": "1"}


def python_with_venv() -> Path:
    """Return a Python that any user may run: Debian's if it has venv, else the one that runs the tests."""
    have = (
        DEBIAN_PYTHON.exists()
        and run(DEBIAN_PYTHON, "-c", "import ensurepip, venv", check=False).returncode == 0
    )
    if not have and os.geteuid() == 0:
        pytest.skip("needs Debian's python3-venv")
    return DEBIAN_PYTHON if have else Path(sys.executable)


def installed(wheel: Path, home: Path, env: Mapping[str, str], **user: Any) -> Path:
    """Install the wheel as a user would, without an index and without compilers, and return the environment."""
    venv = home / "venv"
    run(python_with_venv(), "-m", "venv", venv, env=env, **user)
    run(
        venv / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links", wheel.parent, "iotrial",
        env=env, cwd=home, **user,
    )  # fmt: skip
    return venv


@pytest.fixture(scope="module")
def slim(wheel: Path, folder: Path, plain_path: str) -> Path:
    """Return the environment of the user who runs the tests: root, in CI."""
    home = folder / "slim"
    home.mkdir()
    return installed(wheel, home, environment(plain_path, home))


def test_the_wheel_is_tagged_for_any_linux_and_its_probe_needs_no_library(wheel: Path) -> None:
    machine = os.uname().machine
    assert f"manylinux2014_{machine}" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        header = Parser().parsestr(
            archive.read(next(n for n in names if n.endswith(".dist-info/WHEEL"))).decode()
        )
        probe = ELFFile(io.BytesIO(archive.read(next(n for n in names if n.endswith("/scripts/ioprobe")))))
    assert header.get_all("Tag") == [
        f"py3-none-manylinux2014_{machine}",
        f"py3-none-manylinux_2_17_{machine}",
    ]
    kinds = {segment["p_type"] for segment in probe.iter_segments()}
    assert "PT_INTERP" not in kinds
    assert {name.partition(".data/data/")[2] for name in names if ".data/data/" in name} == SHARED
    with zipfile.ZipFile(wheel) as archive:
        bill = json.loads(archive.read(next(n for n in names if "/sboms/" in n)))
    assert {"libc", "rustix", "serde"} <= {one["name"] for one in bill["components"]}
    assert not [tag for s in probe.iter_segments("PT_DYNAMIC") for tag in s.iter_tags("DT_NEEDED")]
    assert sum(name.startswith("iotrial/catalogue/") and name.endswith(".toml") for name in names) == len(
        list((ROOT / "python/iotrial/catalogue").rglob("*.toml"))
    )


def test_an_installation_is_small_and_has_no_scipy(slim: Path) -> None:
    packages = next(slim.glob("lib/python3*/site-packages"))
    names = {path.name for path in packages.iterdir()}
    assert {"iotrial", "numpy", "click"} <= names
    assert not names & {
        "scipy",
        "pandas",
        "pyarrow",
        "distributed",
        "cryptography",
        "pydoe",
        "starlette",
        "uvicorn",
        "elftools",
    }
    own = [path for path in slim.rglob("*") if path.is_file() and not path.is_symlink()]
    used = sum(path.stat().st_blocks * 512 for path in own if packages / "pip" not in path.parents)
    assert used < LARGEST_MB * 1_000_000, f"{used:,} bytes"


def test_the_installed_program_reports_a_packed_trial_and_names_missing_extras(
    slim: Path, folder: Path
) -> None:
    iotrial, work = slim / "bin/iotrial", folder / "slim"
    env = environment("/usr/bin:/bin", work)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(iotrial, "--version", env=env).stdout.split()[-1] == version
    page = work / "report.html"
    plain = json.loads(run(iotrial, "report", PACKED, "--json", "--html", page, env=env).stdout)
    assert plain["trial"]["study"] == "nas/nfs"
    assert page.read_text().count("<svg role=") > 2
    run(iotrial, "report", PACKED, "--figures", work / "figures", env=env)
    assert list((work / "figures").glob("*.svg"))
    for argv, extra in (
        (("fleet", "run", "files/permissions", "--scheduler", "tls://127.0.0.1:1"), "fleet"),
        (("serve",), "serve"),
        (("export", PACKED, "--as", "parquet", "--to", work / "runs.parquet"), "frames"),
    ):
        refused = run(iotrial, *argv, env=env, check=False)
        assert refused.returncode == 2, refused.stderr
        assert f"pip install 'iotrial[{extra}]'" in refused.stderr
    screen = (ROOT / "python/iotrial/catalogue/system/screen.toml").read_text()
    other = screen.replace('kind = "fractional"\nresolution = 4', 'kind = "plackett-burman"')
    assert other != screen
    (work / "screen.toml").write_text(other)
    # 30 factors and two controls: the smallest of 2^n, 12 2^n and 20 2^n rows that holds 32 columns
    assert "30 factors, 40 treatments" in run(iotrial, "show", work / "screen.toml", env=env).stdout


@pytest.mark.root
def test_an_ordinary_user_installs_it_in_a_home_and_runs_a_trial(
    wheel: Path, folder: Path, plain_path: str
) -> None:
    home = folder / "nobody"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    env = environment(plain_path, home)
    venv = installed(wheel, home, env, **user)
    rehearsed = run(
        venv / "bin/iotrial", "run", "files/permissions", "--lab", "directory", "--rehearse",
        env=env, cwd=home, **user,
    )  # fmt: skip
    assert rehearsed.stdout or rehearsed.stderr
    assert {path.stat().st_uid for path in home.rglob("*") if not path.is_symlink()} == {NOBODY}


# The Debian package, in the machine's own system under a layer that is thrown away: installed, run, verified, removed.
_TRIED = """
set -eu
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changed /mnt/work /mnt/system
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changed,workdir=/mnt/work /mnt/system
mount -t proc proc /mnt/system/proc
mount --rbind /dev /mnt/system/dev
cp "$1" /mnt/system/tmp/iotrial.deb
cp "$2" /mnt/system/tmp/trial.iotrial
inside() { chroot /mnt/system env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@"; }
inside dpkg -i /tmp/iotrial.deb >&2
inside iotrial --version
inside su nobody -s /bin/sh -c 'iotrial report /tmp/trial.iotrial --markdown -' | head -n 3
inside man -w iotrial || :
inside dpkg --verify iotrial
if inside sh -c 'command -v systemd-analyze' >/dev/null; then
    inside sh -c 'cp /usr/lib/systemd/system/iotrial-live@.service /tmp/iotrial-live@x.service
        systemd-analyze verify --man=no /usr/lib/systemd/system/iotrial-applied-check.* /tmp/iotrial-live@x.service 2>&1' |
        sed 's/^/unit: /'
fi
inside dpkg -r iotrial >&2
find /mnt/changed -name '*iotrial*' ! -path '/mnt/changed/tmp/*' -print
"""


@pytest.mark.root
def test_the_debian_package_installs_runs_and_leaves_nothing_when_removed(wheel: Path, folder: Path) -> None:
    if shutil.which("dpkg-deb") is None or python_with_venv() != DEBIAN_PYTHON:
        pytest.skip("needs Debian")
    env = {**environment(os.environ["PATH"], folder), "EXTRAS": ""}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    package = Path(run(ROOT / "scripts/deb", wheel, env=env).stdout.strip())
    try:
        control = Parser().parsestr(run("dpkg-deb", "--field", package).stdout)
        listed = run("dpkg-deb", "--contents", package).stdout
        tried = run("unshare", "--mount", "sh", "-c", _TRIED, "sh", package, PACKED)
    finally:
        package.unlink()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (control["Package"], control["Version"]) == ("iotrial", version)
    assert "python3 (<< 3." in control["Depends"]
    for name in (
        "lib/systemd/system/iotrial-live@.service",
        "lib/systemd/system/iotrial-applied-check.timer",
        "share/bash-completion/completions/iotrial",
        "share/fish/vendor_completions.d/iotrial.fish",
        "share/man/man1/iotrial.1.gz",
        "share/zsh/vendor-completions/_iotrial",
    ):
        assert f"./usr/{name}\n" in listed
    assert not [line for line in listed.splitlines() if "root/root" not in line]
    said = tried.stdout.splitlines()
    assert said[0] == f"iotrial, version {version}"
    assert said[1].startswith("#")
    assert not [line for line in said if line.startswith("unit: ")], "systemd-analyze complains"
    assert not [line for line in said if line.startswith(("??", "missing"))], (
        "files differ from those of the package"
    )
    assert not [line for line in said if line.startswith("/mnt/changed")], "left after dpkg -r"


def steps_of(action: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the script of each step and its variables, with the inputs as expressions."""
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input would be evaluated as shell code"
        yield step["run"], step.get("env", {})


def act(
    folder: Path, inputs: Mapping[str, str], *, action: Path = ROOT, workspace: Path | None = None
) -> tuple[int, Mapping[str, str], str]:
    """Run the steps of action.yml as GitHub does. Return exit status, outputs and the job's summary."""
    declared = yaml.safe_load((action / "action.yml").read_text())
    assert declared["runs"]["using"] == "composite"
    assert set(inputs) <= set(declared["inputs"])
    values = {name: inputs.get(name, given.get("default", "")) for name, given in declared["inputs"].items()}
    folder.mkdir()
    output, summary = folder / "output", folder / "summary.md"
    output.touch()
    summary.write_text("An earlier step's summary.\n")
    env = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "GITHUB_ACTION_PATH": str(action), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(folder), "CI": "true",
    }  # fmt: skip
    status = 0
    for script, variables in steps_of(declared):
        given = {}
        for name, expression in variables.items():
            key = expression.removeprefix("${{ inputs.").removesuffix(" }}")
            given[name] = values[key]
        status = in_bash(script, {**env, **given}, workspace or folder).returncode
        if status:
            break
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return status, outputs, summary.read_text()


def in_bash(script: str, env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a step's script: "shell: bash" is this command line."""
    return run(
        "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script, env=env, cwd=cwd, check=False
    )


STUDY = """
[study]
name = "ci/tool"
question = "Is the second tool slower?"
margin = "5 %"

[[factor]]
name = "tool"
knob = "command.argument"
placeholder = "{tool}"
levels = ["true", "sleep"]

[[workload]]
name = "use"
kind = "command"
files = 2
size = "4 KiB"
cache = "warm"
argv = ["/bin/sh", "-c", "[ $0 = true ] || sleep 0.02", "{tool}"]
"""


def test_the_action_fails_a_slower_build_and_writes_the_summary(
    wheel: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    study = folder / "tool.toml"
    study.write_text(STUDY)
    inputs = {
        "study": str(study),
        "arguments": "--trust --lab directory --time 20s",
        "version": str(wheel),
    }
    status, outputs, summary = act(folder / "slower", inputs)
    assert status == 4, summary
    assert outputs["status"] == "4"
    assert zipfile.is_zipfile(outputs["trial"]) or Path(outputs["trial"]).stat().st_size > 1000
    assert summary.startswith("An earlier step's summary.\n")
    assert "slower" in summary
    assert "| " in summary


def test_the_action_takes_inputs_as_data(wheel: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    inputs = {"study": "$(touch caught)", "arguments": "`touch caught` ; touch caught", "version": str(wheel)}
    status, outputs, summary = act(folder / "hostile", inputs)
    assert status == 2
    assert outputs == {"status": "2"}
    assert summary == "An earlier step's summary.\n"
    assert not list((folder / "hostile").rglob("caught"))


#: a suite that makes up its times, in percent of about 1000 ns
BENCH = """\
#!/bin/bash
echo '{"context": {}, "benchmarks": [{"name": "copy", "run_name": "copy", "run_type": "iteration", "time_unit": "ns",'
echo '"real_time": '$(( PERCENT * (1000 + RANDOM % 10) / 100 ))'}]}'
"""
MAKEFILE = "bench: bench.sh\n\tinstall -m 755 bench.sh bench\n"


def pull_request(folder: Path, percent: int) -> tuple[Path, str]:
    """Make a repository with the action copied into it; return it and the commit below that of the pull request."""
    origin = folder / "origin"
    (origin / ".github/actions/iotrial").mkdir(parents=True)
    shutil.copy(ROOT / "action.yml", origin / ".github/actions/iotrial")
    (origin / "Makefile").write_text(MAKEFILE)
    git = ("git", "-C", origin, "-c", "user.name=a", "-c", "user.email=a@example.org")
    run("git", "init", "-q", "-b", "main", origin)
    for part in (100, percent):
        (origin / "bench.sh").write_text(BENCH.replace("PERCENT", str(part)))
        run(*git, "add", "-A")
        run(*git, "commit", "-q", "--allow-empty", "-m", str(part))
    return origin, run(*git, "rev-parse", "HEAD~1").stdout.strip()


def run_workflow(folder: Path, origin: Path, base: str) -> tuple[int, dict[str, str], list[str]]:
    """Run the example workflow on a pull request, as far as it can be run here.

    Return the status of the job, the values of expressions after the action, and the files that would be uploaded.
    """
    workflow = yaml.safe_load((ROOT / "docs/examples/github-workflow.yml").read_text())
    (job,) = workflow["jobs"].values()
    workspace = folder / "workspace"
    workspace.mkdir()
    values = {"github.event.pull_request.base.sha": base}
    uploaded: list[str] = []
    status = 0

    def filled(text: str) -> str:
        """Fill in expressions; KeyError for one that a pull request does not have."""
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: values[found[1]], text)

    for step in job["steps"]:
        uses, given = (
            step.get("uses", ""),
            {name: filled(text) for name, text in step.get("with", {}).items()},
        )
        if uses.startswith("actions/upload-artifact@"):
            always, _, wanted = step["if"].partition(" && ")
            assert always == "always()"
            uploaded = given["path"].split() if values[wanted] else []
        elif status:
            continue
        elif uses.startswith("actions/checkout@"):
            place = workspace / given["path"]
            run("git", "clone", "-q", origin, place)
            run("git", "-C", place, "checkout", "-q", given.get("ref", "main"))
        elif uses.startswith("./"):
            status, outputs, summary = act(
                folder / "runner", given, action=workspace / uses, workspace=workspace
            )
            declared = yaml.safe_load((workspace / uses / "action.yml").read_text())["outputs"]
            values |= {f"steps.{step['id']}.outputs.{name}": outputs.get(name, "") for name in declared}
            values["summary"] = summary
        else:
            status = in_bash(step["run"], os.environ, workspace).returncode
    return status, values, uploaded


@pytest.mark.parametrize(("percent", "status", "answer"), [(110, 4, "slower"), (100, 0, "as fast")])
def test_the_example_workflow_fails_a_pull_request_that_is_slower_and_passes_one_that_is_not(
    wheel: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, percent: int, status: int, answer: str
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    own = folder / f"job-{percent}"
    own.mkdir()
    ended, values, uploaded = run_workflow(own, *pull_request(own, percent))
    assert ended == status, values
    assert values["steps.iotrial.outputs.status"] == str(status)
    summary = values["summary"]
    assert summary.startswith("An earlier step's summary.\n")
    assert re.search(rf"\| copy \|.*\| {answer} \|", summary)
    assert [Path(file).name for file in uploaded] == ["trial.iotrial", "iotrial-junit.xml"]
    assert all(Path(file).stat().st_size > 100 for file in uploaded)


def test_no_answer_passes_with_a_warning_unless_it_is_to_fail(
    wheel: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    inputs = {"base": "true", "head": "true", "arguments": "--blocks 1", "version": str(wheel)}
    passed, outputs, summary = act(folder / "open", inputs)
    assert (passed, outputs["status"]) == (0, "6")
    assert "No answer" in summary
    assert act(folder / "strict", {**inputs, "fail-if": "slower inconclusive"})[0] == 6


def test_the_container_installs_the_programs_that_set_up_installs() -> None:
    """The makers of file systems and the database that the shipped studies need, by the names in scripts/setup."""
    needed = {
        line.split()[2]
        for line in (ROOT / "scripts/setup").read_text().splitlines()
        if line.startswith("need ") and '"' not in line
    }
    container = (ROOT / "Containerfile").read_text()
    packages = container.partition("--no-install-recommends ")[2].partition(" \\\n")[0].split()
    assert {"e2fsprogs", "xfsprogs", "btrfs-progs"} <= needed
    assert needed <= set(packages)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1:] == ["*", "!dist/iotrial-*.whl"]


JOB = ROOT / "docs/examples/kubernetes-job.yaml"


def test_the_kubernetes_job_fits_the_schemas_of_kubernetes(folder: Path) -> None:
    checking = folder / "kubernetes"
    run(python_with_venv(), "-m", "venv", checking)
    run(
        checking / "bin/python", "-m", "pip", "install", "-q", "--only-binary", ":all:", "kubernetes-validate"
    )
    run(checking / "bin/kubernetes-validate", "--strict", JOB)
    wrong = checking / "wrong.yaml"
    wrong.write_text(JOB.read_text().replace("backoffLimit: 0", "backoffLimits: 0"))
    assert run(checking / "bin/kubernetes-validate", "--strict", wrong, check=False).returncode != 0


@pytest.mark.root
def test_the_kubernetes_job_runs_its_trial_as_an_ordinary_user(
    slim: Path, folder: Path, plain_path: str
) -> None:
    """The arguments of the Job, in folders with the owners and modes that fsGroup gives volumes."""
    (job,) = [one for one in yaml.safe_load_all(JOB.read_text()) if one["kind"] == "Job"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {one["mountPath"]: folder / one["name"] for one in container["volumeMounts"]}
    group = pod["securityContext"]["fsGroup"]
    for place in volumes.values():
        place.mkdir()
        os.chown(place, 0, group)
        place.chmod(0o2775)

    def placed(text: str) -> str:
        for path, place in volumes.items():
            if text == path or text.startswith(f"{path}/"):
                return f"{place}{text.removeprefix(path)}"
        return "5s" if text == "10m" else text

    user = {"user": pod["securityContext"]["runAsUser"], "group": group, "extra_groups": []}
    env = {"PATH": plain_path, **{one["name"]: placed(one["value"]) for one in container["env"]}}
    argv = [slim / "bin/iotrial", *map(placed, container["args"])]
    done = run(*argv, env=env, cwd=placed(container["workingDir"]), check=False, **user)
    assert done.returncode in (0, 6), done.stderr  # 6: a busy machine has no answer after seconds
    results = volumes["/results"]
    assert (results / "report.md").read_text().startswith("#")
    assert (results / "state/iotrial/trials.db").exists()
