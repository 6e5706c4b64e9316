"""The book: every page opens, links lead somewhere, search finds, nothing comes from a
network, and anyone can read it.

The book is built here with two notebooks that run and the others as they are.
LABKIT_BOOK=build/book/html tests one that `make book` has built.
"""

import functools
import http.server
import os
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from labkit.core.paths import ROOT
from labkit.lesson import exercise_files
from tests.needs import needs

# builds a book
pytestmark = [needs("furo", "myst_nb", "sphinx"), pytest.mark.timeout(1500)]
RUN = ("00", "03")
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a built book."""
    if built := os.environ.get("LABKIT_BOOK"):
        return Path(built).resolve()
    folder = tmp_path_factory.mktemp("book")
    command = [
        sys.executable,
        "-m",
        "book",
        "--only",
        *RUN,
        "--jobs",
        "2",
        "--folder",
        str(folder),
    ]
    environment = os.environ | {"LABKIT_PROFILE": "smoke"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


class Page(HTMLParser):
    """What a page links to and loads, which ids it has, and its pictures' texts."""

    def __init__(self, path):
        super().__init__()
        self.links = []
        self.loaded = []
        self.ids = set()
        self.pictures = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.add(found.get("id"))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in (
            "index",
            "search",
            "next",
            "prev",
            "author",
            "canonical",
        ):
            self.loaded.append(found["href"])
        if tag == "img":
            self.pictures.append(found)
        if "src" in found:
            self.loaded.append(found["src"])


@pytest.fixture(scope="module")
def pages(site):
    """Of each page, by its path in the site, what stands in it. The planner's, which
    loads Pyodide, has tests of its own.
    """
    return {
        path.relative_to(site).as_posix(): Page(path)
        for path in sorted(site.rglob("*.html"))
        if path.name != "planner.html"
    }


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site, pages):
    broken = []
    for name, page in pages.items():
        for link in page.links + page.loaded:
            target, anchor = urldefrag(link)
            if urlsplit(target).scheme in ("http", "https", "data", "mailto"):
                continue
            beside = site / Path(name).parent / unquote(target.partition("?")[0])
            file = Path(os.path.normpath(beside)) if target else site / name
            there = file.relative_to(site).as_posix()
            if not file.is_file() or (
                anchor
                and file.suffix == ".html"
                and unquote(anchor) not in pages[there].ids
            ):
                broken.append(f"{name}: {link}")
    assert not broken
    loaded = [(name, url) for name, page in pages.items() for url in page.loaded]
    assert [each for each in loaded if urlsplit(each[1]).netloc] == [], "from elsewhere"


def test_every_picture_has_its_text(site, pages):
    pictures = [
        (name, picture) for name, page in pages.items() for picture in page.pictures
    ]
    assert not [name for name, picture in pictures if not picture.get("alt")]
    boards = [picture for name, picture in pictures if name.startswith("notebooks/00")]
    assert any("images/s" in picture["alt"] for picture in boards)
    assert all((site / "notebooks" / picture["src"]).is_file() for picture in boards)
    # a board on the first page
    assert any(name == "index.html" for name, _ in pictures)


def test_exercises_are_open_and_no_solution_is_shown(site):
    (path,) = (site / "notebooks").glob("03_*.html")
    text = path.read_text(encoding="utf-8")
    assert "03.1: hint 1 of " in text
    assert "<details open" not in text
    (solution,) = (
        line
        for line in exercise_files.solutions("03")["03.2"].splitlines()
        if "out[i] =" in line
    )
    assert solution.strip().split(" = ")[1] not in path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address(site):
    """The site's address on a server of its own."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Silent, directory=site)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def watched(chromium, address):
    """Opens a page of Chromium; what went wrong on it, and each request that left the
    site, is in `wrong`.
    """
    contexts = []
    wrong = []

    def left(request):
        """Whether the page was left before all had come."""
        return request.failure == "net::ERR_ABORTED"

    def opened(scheme="light", size=WIDE):
        contexts.append(chromium.new_context(viewport=size, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on(
            "console",
            lambda m: (
                wrong.append(f"{page.url}: {m.text}") if m.type == "error" else None
            ),
        )
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        page.on(
            "requestfailed",
            lambda r: (
                None if left(r) else wrong.append(f"{page.url}: {r.failure}: {r.url}")
            ),
        )
        page.on(
            "request",
            lambda r: (
                None
                if r.url.startswith((address, "data:"))
                else wrong.append(f"out: {r.url}")
            ),
        )
        return page

    opened.wrong = wrong
    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_and_has_no_serious_fault_of_accessibility(
    watched, address, pages, scheme
):
    axe = Axe()
    page = watched(scheme)
    faults = []
    options = {"resultTypes": ["violations"]}
    names = list(pages)
    # a notebook that didn't run shows less than those of RUN
    if "LABKIT_BOOK" not in os.environ:
        not_run = [
            n for n in pages if n.startswith("notebooks/") and n[10:12] not in RUN
        ]
        names = [
            n for n in pages if n not in not_run and not n.startswith("reference/")
        ]
        names.append("reference/names.html")
    # nothing but colors differs, and one page of each kind has them all
    if scheme == "dark":
        options["runOnly"] = ["color-contrast"]
        names = [
            *{Path(name).parent: name for name in reversed(names)}.values(),
            "index.html",
            "claims.html",
        ]
    for name in names:
        page.goto(address + name)
        for fault in axe.run(page, options=options).response["violations"]:
            if fault["impact"] in ("serious", "critical"):
                faults.append(
                    f"{name}: {fault['help']}:"
                    f" {[node['html'][:200] for node in fault['nodes'][:3]]}"
                )
    assert not faults, "\n".join(faults)
    assert not watched.wrong


def test_no_page_is_wider_than_a_phone(watched, address, pages):
    page = watched(size=PHONE)
    wide = []
    for name in pages:
        page.goto(address + name)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide.append(f"{name}: {width} px")
    assert not wide
    assert not watched.wrong
    page.goto(address + next(name for name in pages if name.startswith("notebooks/00")))
    picture = page.locator(".cell_output figure").first
    width = "e => e.querySelector('img').getBoundingClientRect().width > innerWidth"
    assert picture.evaluate(width), "it scrolls"
    assert picture.get_attribute("tabindex") == "0"


def test_search_finds_a_word_where_it_is_explained_however_it_is_spelled(
    watched, address
):
    page = watched()
    for query, title in {
        "bank+conflict": "04 Why is my kernel waiting for memory?",
        "allreduce": "12 Do two GPUs halve the time?",
        "AllReduce": "Glossary",
    }.items():
        page.goto(f"{address}search.html?q={query}")
        page.locator("#search-results li a", has_text=title).first.wait_for()
    assert not watched.wrong


def test_a_words_first_use_leads_to_the_glossary(watched, address, pages):
    page = watched()
    page.goto(address + next(name for name in pages if name.startswith("notebooks/03")))
    word = page.locator("a.word", has_text="block").first
    assert "SM" in word.get_attribute("title")
    assert page.locator("a.word", has_text="block").count() == 1
    word.click()
    assert page.url.endswith("glossary.html#word-block")
    assert page.locator("dt#word-block").is_visible()
