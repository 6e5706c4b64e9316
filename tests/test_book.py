"""What the book makes of docstrings, of the glossary and of links; tests/browser/test_book.py builds and opens it."""

import contextlib
import json

import nbformat
import pytest

from labkit.lesson import notebook_files
from tests.needs import needs

pytestmark = needs("docutils", "sphinx")
with contextlib.suppress(ImportError):
    from book import docstrings, glossary, pages, run, words


@pytest.mark.parametrize(
    ("text", "rst"),
    [
        ("Time `fn` for `budget_s` seconds.", "Time ``fn`` for ``budget_s`` seconds."),
        ("all of `Timing`s fields", r"all of ``Timing``\ s fields"),
        ("2 * x, *args and trailing_ underscores", r"2 \* x, \*args and trailing\_ underscores"),
        ("`a * b` in [a paper](https://example.org/a_b)", "``a * b`` in `a paper <https://example.org/a_b>`__"),
    ],
)
def test_a_docstring_is_read_as_sentences_with_code(text, rst):
    assert docstrings.rst(text) == rst


def test_each_word_of_the_glossary_has_one_entry_and_a_notebook_that_uses_it():
    entries = glossary.glossary()
    assert len(entries) == glossary.GLOSSARY.read_text(encoding="utf-8").count("\n- ")
    forms = [form.lower() for word in entries for form in (word.term, *word.also)]
    assert sorted(forms) == sorted(set(forms))
    assert [word.term for word in entries] == sorted((word.term for word in entries), key=str.lower)
    names = {path.name for path in notebook_files.paths()}
    assert all(word.meaning.rsplit("notebooks/", 1)[1].removesuffix(").") in names for word in entries)


def test_a_word_with_an_everyday_meaning_is_linked_only_where_it_has_the_fields():
    (block,) = (word for word in glossary.glossary() if word.term == "block")
    assert "13" not in block.only  # there a block is a transformer's


@pytest.mark.parametrize(
    ("link", "mended"),
    [
        ("[00](notebooks/00_start_here.ipynb)", "[00](../notebooks/00_start_here.ipynb)"),
        ("[words](docs/glossary.md)", "[words](../glossary.md)"),
        ("[LICENSE](LICENSE)", "`LICENSE`"),
        ("[the map](labkit/core)", "the map (`labkit/core`)"),
        ("[a paper](https://example.org)", "[a paper](https://example.org)"),
    ],
)
def test_a_link_to_what_is_no_page_becomes_text(link, mended, monkeypatch):
    monkeypatch.setattr(pages, "address", lambda: "")
    assert pages._relinked(link, "README.md", "about/README.md") == mended


def test_a_link_to_a_file_leads_to_the_public_address_where_there_is_one(monkeypatch):
    monkeypatch.setattr(pages, "address", lambda: "https://github.com/owner/name")
    found = pages._relinked("[LICENSE](../LICENSE)", "labkit/README.md", "labkit/README.md")
    assert found == "[LICENSE](https://github.com/owner/name/blob/main/LICENSE)"


def test_what_a_widget_leaves_in_the_book_is_the_picture_beside_it():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}

    def output(data):
        return nbformat.v4.new_output("display_data", data)

    outputs = [
        output({"text/html": "<figure></figure>", "image/png": "", "text/plain": "<SpeedBoard>"}),
        output(view | {"text/html": "", "text/plain": "<SpeedBoard>"}),
        output(view | {"text/plain": "FloatText()"}),
        output(view | {"text/html": "a guess", "text/plain": "a guess"}),
        nbformat.v4.new_output("stream", text="printed"),
    ]
    shown = list(run._shown(outputs))
    assert [o.get("data", {}).get("text/html") for o in shown] == ["<figure></figure>", "a guess", None]
    assert "widget" not in json.dumps(shown)


def test_a_notebook_runs_again_when_what_it_stands_on_changes(tmp_path, monkeypatch):
    path = notebook_files.paths()[0]
    key = run._key(path)
    assert run._key(path) == key
    monkeypatch.setenv("LABKIT_PROFILE", "smoke")
    assert run._key(path) != key
    changed = tmp_path / path.name
    changed.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    assert run._key(changed) != key


def test_the_first_page_names_a_section_of_the_readme_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("# Another\n\n## Begin\n\nHere.\n", encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"README.md has no section 'Two commands'"):
        pages._index(tmp_path)
