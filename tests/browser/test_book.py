"""The book: every page opens, links lead somewhere, search finds, nothing comes from a
network, and anyone can read it.

The book is built here with two notebooks that run and the others as they are.
LABKIT_BOOK=build/book/html tests one that `make book` has built.
"""

import functools
import http.server
import os
import random
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
from trainplan import schedule
from trainplan.errors import ScheduleError

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
    loads Pyodide, has tests of its own, and JupyterLite's pages are not ours.
    """
    return {
        path.relative_to(site).as_posix(): Page(path)
        for path in sorted(site.rglob("*.html"))
        if path.name != "planner.html" and site / "lite" not in path.parents
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

    def opened(scheme="light", size=WIDE, **settings):
        settings |= {"viewport": size, "color_scheme": scheme}
        contexts.append(chromium.new_context(**settings))
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
    run_pages = [f"notebooks/{number}" for number in RUN]
    # A notebook that didn't run shows less than those of RUN, and of the pages of text
    # in one folder each has what the others have.
    if "LABKIT_BOOK" not in os.environ:
        names = [n for n in pages if "/" not in n or n.startswith(tuple(run_pages))]
        names += {Path(n).parent: n for n in pages if "/" in n}.values()
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


def test_code_has_no_line_below_what_is_no_link(watched, address, pages):
    page = watched("dark")
    page.goto(address + next(name for name in pages if name.startswith("notebooks/00")))
    lines = page.locator(".highlight .nn").evaluate_all(
        "all => all.map(e => getComputedStyle(e).textDecorationLine)"
    )
    assert set(lines) == {"none"}


# -- the page "Try it here"


def order_of(editor, rank):
    """The steps of a rank as the page shows them."""
    buttons = editor.locator(f"[data-step^='{rank} ']")
    return [
        step.split()[1]
        for step in buttons.evaluate_all("all => all.map(e => e.dataset.step)")
    ]


def test_a_schedule_is_ordered_with_keys_and_scored_beside_par(watched, address):
    page = watched()
    page.goto(f"{address}try.html")
    editor = page.locator("#try-schedule")
    said = editor.get_by_role("status")
    assert (
        "Rank 0 holds 5 micro-batches at once, and 3 are allowed" in said.inner_text()
    )
    editor.locator("[data-step='0 B0']").press("ArrowLeft")
    assert said.inner_text().startswith(
        "B0 of rank 0 stays where it was. The schedule deadlocks: "
    )
    goal = schedule.one_f_one_b(3, 5)
    for rank in (2, 1, 0):  # a rank's backwards wait for those of the rank after it
        for place, step in enumerate(goal[rank]):
            for _ in range(order_of(editor, rank).index(step) - place):
                editor.locator(f"[data-step='{rank} {step}']").press("ArrowLeft")
    assert [order_of(editor, rank) for rank in range(3)] == goal
    assert (
        "Yours 21, par 21, your best since you opened this page 21."
        in said.inner_text()
    )
    rows = editor.locator(".try-waits tbody tr").all_inner_texts()
    assert [row.split("\t")[-1] for row in rows] == ["3", "2", "1"]
    assert "at B0 for rank 1" in rows[0]
    editor.get_by_label("Micro-batches that a rank may hold").select_option("2")
    assert "and 2 are allowed" in said.inner_text()
    assert not watched.wrong


def as_the_page_says(order):
    """What the page's `simulate` should return, but for what ranks wait for."""
    try:
        plan = schedule.simulate(order)
    except ScheduleError as error:
        return {"refused": str(error)}
    starts = [list(rank) for rank in plan.starts_s]
    return {
        "starts": starts,
        "held": list(plan.peak_activations),
        "time": plan.makespan_s,
    }


def test_the_page_simulates_as_trainplan_does(watched, address):
    page = watched()
    page.goto(f"{address}try.html")
    draw = random.Random(0)
    orders = [schedule.gpipe(3, 4), schedule.one_f_one_b(4, 6)]
    for _ in range(200):
        ranks = draw.randint(2, 4)
        order = draw.choice([schedule.gpipe, schedule.one_f_one_b])(
            ranks, draw.randint(1, 5)
        )
        for _ in range(draw.randint(0, 6)):
            steps = draw.choice(order)
            steps.insert(
                draw.randrange(len(steps)), steps.pop(draw.randrange(len(steps)))
            )
        orders.append(order)
    text = (ROOT / "book" / "try_here" / "schedule.js").read_text(encoding="utf-8")
    simulated = page.evaluate(
        """async ([text, orders]) => {
            const url = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
            return orders.map((await import(url)).simulate);
        }""",
        [text, orders],
    )
    expected = [as_the_page_says(order) for order in orders]
    assert [
        {name: plan[name] for name in plan if name != "waits"} for plan in simulated
    ] == expected
    assert 20 < sum("refused" in plan for plan in expected) < 180


def test_two_threads_lose_an_addition_in_one_order_and_not_in_another(watched, address):
    page = watched()
    page.goto(f"{address}try.html")
    stepper = page.locator("#try-threads")
    said = stepper.get_by_role("status")
    memory = stepper.locator(".try-memory td")
    for order, end in (("0101", "1"), ("0011", "2")):
        stepper.get_by_role("button", name="From the start").click()
        for thread in order:
            stepper.get_by_role("button", name=f"Step of thread {thread}").click()
        assert memory.inner_text() == end
    assert "That was the last one." in said.inner_text()
    last = stepper.get_by_role("button", name="Step", exact=True)
    assert last.get_attribute("aria-disabled") == "true"
    stepper.get_by_role("button", name="Back").click()
    assert memory.inner_text() == "1"
    stepper.get_by_label("The code has").select_option("in one step")
    assert "Nothing has been read" in said.inner_text()
    assert not watched.wrong


def test_a_puzzle_plays_when_asked_and_never_for_who_wants_no_motion(watched, address):
    page = watched()
    page.clock.install()
    page.goto(f"{address}try.html")
    puzzles = page.locator("#try-puzzles")
    puzzles.get_by_label("Puzzle").select_option("23.3")
    page.clock.run_for(10_000)
    assert puzzles.locator(".try-steps li").count() == 0
    puzzles.get_by_role("button", name="Play").click()
    page.clock.run_for(60_000)
    assert puzzles.locator(".try-memory tr", has_text="out").inner_text().split()[1:] == [
        "6", "2", "8", "2", "10", "18",
    ]  # fmt: skip
    assert puzzles.get_by_role("button", name="Play").is_visible()
    still = watched(reduced_motion="reduce")
    still.goto(f"{address}try.html")
    assert still.get_by_role("button", name="Step", exact=True).count() == 2
    assert still.get_by_role("button", name="Play").count() == 0
    assert not watched.wrong


def test_without_scripts_nothing_looks_alive(watched, address):
    page = watched(java_script_enabled=False)
    page.goto(f"{address}try.html")
    assert page.locator("article button").count() == 0
    # Playwright calls no text of a <noscript> visible; with scripts it has no elements
    assert (
        page.locator("noscript strong").inner_text() == "The last three need JavaScript"
    )
