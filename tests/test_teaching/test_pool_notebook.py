"""The notebook that takes results files by upload."""

import json

import ipywidgets
import pytest

from labkit.core.paths import RECORDED, ROOT


class Shown:
    """What the notebook's display shows in its second place, instead of a front end."""

    def __init__(self):
        self.last = None

    def update(self, html):
        self.last = html.data


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 8])
def test_uploaded_files_become_the_page(version, tmp_path, monkeypatch):
    place = Shown()
    monkeypatch.setattr(
        "IPython.display.display",
        lambda *_, display_id=False: place if display_id else None,
    )
    monkeypatch.chdir(tmp_path)
    cells = json.loads(
        (ROOT / "docs" / "teaching" / "pool.ipynb").read_text(encoding="utf-8")
    )["cells"]
    names = {}
    exec("".join(cells[1]["source"]), names)
    assert isinstance(names["button"], ipywidgets.FileUpload)
    named = {
        path.name: {"content": path.read_bytes()} for path in RECORDED.glob("*.jsonl")
    }
    listed = tuple(
        {"name": name, "content": memoryview(file["content"])}
        for name, file in named.items()
    )
    names["show"]({"new": named if version == 7 else listed})
    assert f"Results of {len(named)} readers" in place.last
    assert place.last.count('"') == 10, (
        "the page within the attribute srcdoc has no quotation marks of its own"
    )
    assert f"Results of {len(named)} readers" in (tmp_path / "pool.html").read_text(
        encoding="utf-8"
    )
    assert "intel" not in place.last.split("<style")[0]
    names["show"]({"new": ()})
    assert "None of these files holds results" in place.last
