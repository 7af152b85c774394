"""Export as an RO-Crate: a zip with the runs, the report, the study, and metadata in JSON-LD that repositories read.

The crate follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) and its profile Process Run Crate
(https://w3id.org/ro/wfrun/process/0.5): the trial is an action of iotrial with the study as input and the runs and the report
as results. Every fact about machine and lab that the trial holds is a property of the machine: kernel, processor, firmware,
disks, how full the file system was, versions.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from iotrial.report.document import Document, flattened
from iotrial.report.exports import csv
from iotrial.report.exports import json as json_export
from iotrial.report.notation import utc
from iotrial.report.render import html_report

SUFFIX = ".crate.zip"

METADATA = "ro-crate-metadata.json"
_CRATE, _PROCESS = "https://w3id.org/ro/crate/1.1", "https://w3id.org/ro/wfrun/process/0.5"
#: a zip has no earlier date; with it the same trial gives the same bytes
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


def write(document: Document, file: BinaryIO) -> None:
    """Write the crate."""
    contents: dict[str, tuple[str, str, Callable[[], bytes]]] = {
        "runs.csv": (
            "Every run and response; docs/sharing.md of iotrial describes the columns",
            "text/csv",
            lambda: _written(csv.write, document),
        ),
        "report.json": (
            "The analysis: effects, controls, facts",
            "application/json",
            lambda: _written(json_export.write, document),
        ),
        "report.html": (
            "The report as a page",
            "text/html",
            lambda: html_report(document).encode("utf-8", "replace"),
        ),
        "study.toml": (
            "What was compared and how; iotrial runs this file again",
            "application/toml",
            lambda: document.trial.header.study.text.encode("utf-8", "backslashreplace"),
        ),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as crate:
        sizes = {}
        for name, (_, _, made) in contents.items():
            data = made()
            sizes[name] = len(data)
            crate.writestr(zipfile.ZipInfo(name, _FIRST_DATE), data, zipfile.ZIP_DEFLATED)
        files = [
            {
                "@id": name,
                "@type": "File",
                "name": name,
                "description": about,
                "encodingFormat": form,
                "contentSize": str(sizes[name]),
            }
            for name, (about, form, _) in contents.items()
        ]
        text = json.dumps(_metadata(document, files), indent=1)
        crate.writestr(zipfile.ZipInfo(METADATA, _FIRST_DATE), text, zipfile.ZIP_DEFLATED)


def _written(write_to: Callable[[Document, BinaryIO], None], document: Document) -> bytes:
    made = io.BytesIO()
    write_to(document, made)
    return made.getvalue()


def _metadata(document: Document, files: list[dict[str, Any]]) -> dict[str, Any]:
    header = document.trial.header
    started = datetime.fromisoformat(utc(header.started))
    ended = started + timedelta(seconds=document.trial.duration_s)
    facts = [*_facts("machine", header.host), *_facts("lab", header.lab)]
    refer = [{"@id": one["@id"]} for one in files]
    results = [one for one in refer if one["@id"] != "study.toml"]
    return {
        "@context": f"{_CRATE}/context",
        "@graph": [
            {
                "@id": METADATA,
                "@type": "CreativeWork",
                "conformsTo": {"@id": _CRATE},
                "about": {"@id": "./"},
            },
            {
                "@id": "./",
                "@type": "Dataset",
                "conformsTo": {"@id": _PROCESS},
                "name": document.title,
                "description": f"{header.study.question} {document.summary.headline}",
                "datePublished": ended.date().isoformat(),
                "identifier": header.id,
                "license": {"@id": "#license"},
                "hasPart": refer,
                "mentions": {"@id": "#trial"},
            },
            {"@id": _PROCESS, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
            {
                "@id": "#license",
                "@type": "CreativeWork",
                "name": "Not stated",
                "description": "Ask those who publish this crate.",
            },
            {
                "@id": "#trial",
                "@type": "CreateAction",
                "name": f"Trial {header.id}",
                "instrument": {"@id": "#iotrial"},
                "object": [{"@id": "study.toml"}, {"@id": "#machine"}],
                "result": results,
                "startTime": started.isoformat(),
                "endTime": ended.isoformat(),
                "description": f"{document.summary.headline} Seed {header.seed}, error level {header.alpha:g}, margin "
                f"{header.margin:g}.",
            },
            {
                "@id": "#iotrial",
                "@type": "SoftwareApplication",
                "name": "iotrial",
                "softwareVersion": header.version,
            },
            {
                "@id": "#machine",
                "@type": "IndividualProduct",
                "name": "The machine and the lab of the trial",
                "additionalProperty": [{"@id": one["@id"]} for one in facts],
            },
            *facts,
            *files,
        ],
    }


def _facts(about: str, facts: Mapping[str, object]) -> list[dict[str, str]]:
    """Return each fact as a property with a name in words, such as "hardware nvme0n1 firmware"."""
    return [
        {"@id": f"#{about}-{number}", "@type": "PropertyValue", "name": name, "value": value}
        for number, (name, value) in enumerate(flattened(facts), 1)
    ]
