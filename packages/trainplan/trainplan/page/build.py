"""Write the page: one HTML file with its style, its scripts, and the packages in it."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gpufacts
import trainplan
from trainplan.cluster.software import SOFTWARE
from trainplan.costs.memory_costs import OPTIMIZER_STATES, PRECISIONS
from trainplan.costs.transformers import MODELS
from trainplan.page.answers import plan

HERE = Path(__file__).parent
EXAMPLE = {"model": "llama3.1-8b", "gpu": "H100", "gpus": "64", "run_tokens": "1e12"}
"""The question whose answer the page shows before Python is there."""


def version() -> str:
    """The version of Pyodide that the page runs on, of package.json."""
    package = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    pinned: str = package["dependencies"]["pyodide"]
    return pinned


def usual_address() -> str:
    """Where Pyodide's makers serve it."""
    return f"https://cdn.jsdelivr.net/pyodide/v{version()}/full/"


def page(pyodide: str | None = None) -> str:
    """The page's HTML; `pyodide` is the address of another copy of Pyodide's files,
    with a slash at its end.

    Its policy lets the page read that address and no other, and send nothing.
    """
    address = usual_address() if pyodide is None else pyodide
    script = _text("page.js")
    style = _text("page.css")
    policy = [
        "default-src 'none'",
        f"script-src {_hash(script)} 'wasm-unsafe-eval' blob: {address}",
        "worker-src blob:",
        f"connect-src {address}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    values = {
        "POLICY": "; ".join(policy),
        "STYLE": style,
        "SCRIPT": script,
        "WORKER": _text("worker.js"),
        "PYODIDE": html.escape(address),
        "PACKAGES": base64.b64encode(packages()).decode(),
        "EXAMPLE": _data({"fields": EXAMPLE, "answer": plan(EXAMPLE)}),
        "MODELS": _options(MODELS),
        "GPUS": _options(device.name for device in gpufacts.devices()),
        "LIBRARIES": _options(SOFTWARE),
        "PRECISIONS": _options(PRECISIONS),
        "OPTIMIZERS": _options(OPTIMIZER_STATES),
    }
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], _text("page.html"))


def packages() -> bytes:
    """A zip of the Python that the page runs, gpufacts and trainplan: the same bytes
    for the same sources.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, path in sorted(_sources()):
            entry = zipfile.ZipInfo(name)  # dated 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, path.read_bytes())
    return archive.getvalue()


def _sources() -> Iterable[tuple[str, Path]]:
    """Name in the archive, and path, of each file that the page's Python needs."""
    for package in (gpufacts, trainplan):
        assert package.__file__ is not None
        folder = Path(package.__file__).parent
        for suffix in ("py", "csv"):
            for path in folder.rglob(f"*.{suffix}"):
                yield path.relative_to(folder.parent).as_posix(), path


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").rstrip()


def _hash(text: str) -> str:
    """A script or a style as the page's policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data(value: Mapping[str, Any]) -> str:
    """JSON that can stand in a script's tag."""
    return json.dumps(value).replace("<", "\\u003c")


def _options(names: Iterable[str]) -> str:
    return "".join(f"<option>{html.escape(name)}</option>" for name in names)
