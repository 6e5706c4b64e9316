"""Where the texts of the published rows' sources come from."""

import io
import urllib.error

import pytest

from scripts import source_texts

SHA = "744d01e18b79512572f64a6bbd8b5f4a725203a7"


@pytest.mark.parametrize(
    ("row", "names"),
    [
        (
            {"link": f"https://github.com/a/b-c/blob/{SHA}/docs/README.md"},
            ["github.com/a/b-c/744d01e/docs/README.md"],
        ),
        (
            {"source": "a/b docs/x.md, table 2 (commit 744d01e18, 2026-08-22), line 7"},
            ["github.com/a/b/744d01e/docs/x.md"],
        ),
        (
            {"source": "a/b, docs/x.md (historical) (commit 744d01e18)"},
            ["github.com/a/b/744d01e/docs/x.md"],
        ),
        (
            {"source": f"Smith 2022, table 5, in c/d.py (a/b, commit {SHA})"},
            ["github.com/a/b/744d01e/c/d.py"],
        ),
        (
            {"source": "a/b, pull request 17; a/c, issue 9"},
            ["github.com/a/b/pull/17", "github.com/a/c/issues/9"],
        ),
        (
            {"link": f"https://github.com/a/b/commit/{SHA}"},
            ["github.com/a/b/commit/744d01e"],
        ),
        (
            {"source": "Smith 2022 (arXiv 2205.14135), as quoted by https://a.org/b/"},
            ["arxiv.org/abs/2205.14135", "a.org/b"],
        ),
        ({"link": "PCIe", "source": "a data sheet"}, []),
    ],
)
def test_a_rows_sources_have_files_of_their_own(row, names):
    assert [source.name for source in source_texts.of_row(row)] == names


def replies(pages):
    """What urlopen returns: the page of an address, or an error."""

    def opened(address, timeout):
        if address not in pages:
            raise urllib.error.URLError("no network")
        return io.BytesIO(pages[address].encode())

    return opened


def test_a_page_is_stored_as_text_and_what_fails_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(source_texts, "FOLDER", tmp_path)
    page = "<!DOCTYPE html><style>a { b }</style><tr><td>8.05</td><td>ms</td></tr>"
    monkeypatch.setattr(
        "urllib.request.urlopen", replies({"https://arxiv.org/abs/2205.14135": page})
    )
    (source,) = source_texts.of_row({"link": "https://arxiv.org/abs/2205.14135"})
    assert "https://arxiv.org/html/2205.14135" in source_texts.bring(source)
    assert source.path.read_text(encoding="utf-8").split() == ["8.05", "ms"]
    (other,) = source_texts.of_row({"link": "https://example.org/a"})
    assert "no network" in source_texts.bring(other)
    assert not other.path.exists()
    (paper,) = source_texts.of_row({"link": "https://example.org/a.pdf"})
    assert "by hand" in source_texts.bring(paper)


def test_every_row_names_a_source():
    rows = [row for _, row in source_texts.published_rows()]
    assert len(rows) > 1500
    assert all(row.get("source") or row["link"] for row in rows)
