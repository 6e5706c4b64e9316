"""The planner's page in Chromium, with Pyodide from npm's package: it plans, draws, says
what is wrong, sends nothing, and can be used by anyone.
"""

import functools
import http.server
import subprocess
import sys
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from scripts import programs
from tests.needs import needs

pytestmark = needs("pyodide")
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
WAYS = {"model": "name", "config": "config", "sizes": "sizes"}

CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
"_name_or_path": "mine/tiny", "hidden_size": 2048, "intermediate_size": 8192,
"num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
"vocab_size": 128256, "hidden_act": "silu", "max_position_embeddings": 4096}"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and Pyodide's files below /pyodide/."""

    def translate_path(self, path):
        if path.startswith("/pyodide/"):
            return f"{programs.path_of('pyodide')}/{path.removeprefix('/pyodide/')}"
        return super().translate_path(path)

    def log_message(self, *_):
        pass


def write_page(file, pyodide):
    command = [sys.executable, "-m", "trainplan.page", "-o", str(file)]
    subprocess.run([*command, "--pyodide", pyodide], check=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a server with the page on it."""
    folder = tmp_path_factory.mktemp("planner")
    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        write_page(folder / "planner.html", f"{address}pyodide/")
        yield address
        server.shutdown()


def opened(context, address, fragment=""):
    """The page, once Python is there and it shows an answer. `asked` has the addresses that it read,
    `wrong` what the console had to say, `first_said` how it says that it loads.
    """
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.asked = []
    page.wrong = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on(
        "console",
        lambda message: message.type == "error" and page.wrong.append(message.text),
    )
    page.goto(f"{address}planner.html{fragment}")
    page.first_said = page.locator("#status").inner_text()
    page.locator("html[data-ready]").wait_for()
    page.locator("#answer > *").first.wait_for()
    return page


@pytest.fixture(scope="module")
def page(chromium, address):
    context = chromium.new_context(viewport=WIDE)
    page = opened(context, address)
    page.locator("#more summary").click()
    yield page
    context.close()


def plan(page, **fields):
    """Fill in the form, press Enter, and wait for the answer."""
    for name, text in fields.items():
        if name in WAYS:
            page.locator("[name=way]").select_option(WAYS[name])
        page.locator(f"#question [name={name}]").fill(text)
    before = page.locator("#answer > *").first.element_handle()
    page.locator("#question [name=gpus]").press("Enter")
    page.wait_for_function("old => !old.isConnected", arg=before)


def test_it_opens_with_an_example_and_reads_nothing_but_python(page, address):
    assert page.locator(".layouts tbody tr").count() > 1
    assert "Llama-3.1-8B" in page.locator("#answer").inner_text()
    assert page.first_said.startswith("Loading")
    assert page.locator("#status").inner_text() == "Ready."
    own = (f"{address}planner.html", f"{address}pyodide/", f"blob:{address}")
    assert [url for url in page.asked if not url.startswith(own)] == []
    assert page.wrong == []


def test_a_plan_is_drawn_and_its_link_shows_it_again(page, address):
    plan(page, model="llama3.1-70b", gpu="H200", gpus="256", run_tokens="2e12")
    text = page.locator("#answer").inner_text()
    assert "Llama-3.1-70B" in text
    assert "256 x H200" in text
    assert "[parallelism]" in text
    bar = page.locator(".bar").first
    assert "Memory of a GPU: " in bar.get_attribute("aria-label")
    widths = bar.locator(".piece").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width)"
    )
    whole = bar.bounding_box()["width"]
    assert 0.3 * whole < sum(widths) <= whole
    asks = parse_qs(urlsplit(page.url).fragment)
    assert asks == {
        "model": ["llama3.1-70b"],
        "gpu": ["H200"],
        "gpus": ["256"],
        "run_tokens": ["2e12"],
    }
    again = opened(page.context, address, f"#{urlsplit(page.url).fragment}")
    assert again.locator("#answer").inner_text() == text
    again.close()


def test_another_layout_is_chosen_by_keyboard(page):
    plan(page, model="llama3.1-8b", gpu="H100", gpus="64")
    name = page.locator(".layout-name")
    before = name.inner_text()
    page.locator("#layout-0").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#layout-1").is_checked()
    assert name.inner_text() != before


def test_a_number_of_gpus_that_it_found_is_planned(page):
    plan(page, model="llama3.1-8b", gpu="H100", gpus="", run_tokens="1e11", days="20")
    assert page.locator(".layouts th", has_text="x H100 SXM5 80GB").count() == 1
    page.get_by_role("button", name="Plan with").click()
    page.locator(".layouts th", has_text="layout").wait_for()
    assert page.locator("[name=gpus]").input_value().isdecimal()
    assert page.evaluate("document.activeElement.id") == "results-heading"
    plan(page, run_tokens="", days="")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "lama3"}, "Expected a model such as"),
        ({"gpu": "H1000"}, "Expected the name of a device in the table"),
        ({"gpus": "many"}, "“GPUs”"),
        ({"step_tokens": "-5"}, "“Tokens a step”"),
        ({"config": "{"}, "config.json, which can't be read"),
    ],
)
def test_what_cannot_be_planned_is_said_in_the_page_s_words(page, fields, words):
    right = {"model": "llama3.1-8b", "gpu": "H100", "gpus": "8", "step_tokens": ""}
    plan(page, **(right | fields))
    said = page.locator("#answer .error").inner_text()
    assert words in said
    assert "--" not in said
    plan(page, **right)
    assert page.locator("#answer .error").count() == 0


def test_a_pasted_config_is_planned(page):
    plan(page, config=CONFIG, gpu="A100", gpus="8")
    assert "mine/tiny" in page.locator(".title").first.inner_text()


def test_back_shows_the_plan_before(page):
    plan(page, model="llama3.1-8b", gpu="H100", gpus="16")
    plan(page, gpus="32")
    page.go_back()
    title = page.locator(".title", has_text="16 x H100")
    title.wait_for()
    assert page.locator("[name=gpus]").input_value() == "16"


def test_a_driver_s_name_leads_to_its_row(page):
    page.locator("[name=which]").fill("NVIDIA A100-SXM4-40GB")
    page.keyboard.press("Enter")
    row = page.locator("#gpu-answer tr", has_text="bfloat16, dense")
    row.wait_for()
    assert "312 TFLOP/s" in row.inner_text()
    page.locator("[name=which]").fill("GPU 3000")
    page.keyboard.press("Enter")
    page.locator("#gpu-answer .error", has_text="Nearest names").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_anyone_can_read_it(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.locator("[name=which]").fill("T4")
    page.keyboard.press("Enter")
    page.locator("#gpu-answer table").wait_for()
    faults = Axe().run(page).response["violations"]
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in faults] == []


def test_it_is_no_wider_than_a_phone(page):
    page.set_viewport_size(PHONE)
    for fields in ({"model": "llama3.1-8b"}, {"sizes": "layers=2"}):
        plan(page, **fields, gpu="H100", gpus="8")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], fields


def test_it_says_that_it_loads_and_where_python_is_missing(chromium, tmp_path):
    file = tmp_path / "planner.html"
    write_page(file, "http://127.0.0.1:9/pyodide/")  # where nobody answers
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    status = page.locator("#status")
    page.locator("#status.error").wait_for()
    assert "can't be loaded from http://127.0.0.1:9/pyodide/" in status.inner_text()
    assert "python -m trainplan" in status.inner_text()
    context.close()
