"""Which tests run, and what the summary says of the others: a plugin of pytest, for
every run.

`make test` and `make test-packages` leave out what is marked `complete`: browsers,
graders, what starts many processes. `--complete`, which `make test-all` passes, runs it
too. What is marked `nightly`, above all most cases of large tables, runs with
`--nightly` alone, which `make nightly` passes and which implies `--complete`. `--tested
FILE` leaves out what FILE names as passed. Every run writes build/tested.txt: what
passed, and what FILE named. `make quick` (`-m "not slow"`) doesn't even import the
folders of SLOW, nor a file whose `pytestmark` is `pytest.mark.slow`: one whose tests
take more than about a second together.
"""

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests import needs

# Chromium, pretend GPUs, ranks, every exercise
SLOW = ("browser", "rehearsal", "test_ranks", "test_exercises")
MARKED_SLOW = re.compile(r"(?m)^pytestmark = \[?pytest\.mark\.slow\b")
# of a run whose files' seconds are shown, and how many of them
LONG_S = 300
SHOWN = 30
LEFT_OUT = "left out"  # key of workeroutput: how many tests a worker deselected


def sampled(cases, n):
    """Parameters of which every run has `n`, always the same ones, and `make nightly`
    all.

    `cases` are values, tuples of values, or what pytest.param returns.
    """
    chosen = set(random.Random(0).sample(range(len(cases)), min(n, len(cases))))
    params = [
        case if hasattr(case, "marks") else pytest.param(*_tuple(case))
        for case in cases
    ]
    return [
        (
            param
            if i in chosen
            else pytest.param(
                *param.values, id=param.id, marks=[*param.marks, pytest.mark.nightly]
            )
        )
        for i, param in enumerate(params)
    ]


def _tuple(case):
    return case if isinstance(case, tuple) else (case,)


def pytest_addoption(parser):
    parser.addoption(
        "--complete", action="store_true", help="run the tests marked complete, too"
    )
    parser.addoption(
        "--nightly",
        action="store_true",
        help="run all tests: those marked complete and nightly, too",
    )
    parser.addoption(
        "--tested",
        metavar="FILE",
        help="leave out the tests that passed when FILE was written",
    )


def pytest_configure(config):
    config.pluginmanager.register(Summary(config), "workbook-summary")


def pytest_ignore_collect(collection_path, config):
    """True for what `make quick` leaves out as a whole."""
    if config.option.markexpr != "not slow":
        return None
    if collection_path.suffix == ".py":
        return (
            bool(MARKED_SLOW.search(collection_path.read_text(encoding="utf-8")))
            or None
        )
    return collection_path.name in SLOW or None


def tested_before(config):
    """The tests that the file of --tested names; none without that option."""
    if not config.option.tested:
        return set()
    return set(Path(config.option.tested).read_text(encoding="utf-8").splitlines())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Deselect what this run leaves out."""
    tested = tested_before(config)
    started = {
        item.path
        for item in items
        if item.path.suffix == ".ipynb" and item.nodeid not in tested
    }
    skipped_marks = set()
    if not config.option.nightly:
        skipped_marks.add("nightly")
        if not config.option.complete:
            skipped_marks.add("complete")
    out = [
        item
        for item in items
        if skipped_marks & {mark.name for mark in item.iter_markers()}
        # a notebook runs as a whole or not at all
        or (item.nodeid in tested and item.path not in started)
    ]
    if out:
        config.hook.pytest_deselected(items=out)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]
    if hasattr(config, "workeroutput"):
        config.workeroutput[LEFT_OUT] = len(out)
    else:
        config.pluginmanager.get_plugin("workbook-summary").left_out = len(out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip a test whose packages or programs are absent."""
    needs.skip_without(
        *(name for mark in item.iter_markers("needs") for name in mark.args)
    )


class Summary:
    """Where the time went, what was not tested, and why: the last lines before pytest's
    own count.
    """

    def __init__(self, config):
        self.config = config
        self.left_out = 0
        self.skipped = Counter()
        self.passed = set()
        self.partly = {}
        self.seconds = Counter()  # of each file

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
        elif report.passed and report.when == "call":
            name = Path(report.nodeid.partition("::")[0]).name
            lacking = (
                needs.absent(needs.NOTEBOOKS.get(name[:2], ()))
                if name.endswith(".ipynb")
                else []
            )
            if lacking:
                self.partly[name[:2]] = needs.command_for(lacking[0])
            else:
                self.passed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        # each worker has collected all tests
        self.left_out = getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter):
        tested = self.passed | tested_before(self.config)
        file = self.config.rootpath / "build" / "tested.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(sorted(tested)), encoding="utf-8")
        if sum(self.seconds.values()) > LONG_S:
            terminalreporter.section(
                f"{SHOWN} files with the most seconds, of"
                f" {sum(self.seconds.values()):,.0f}"
            )
            for name, seconds in self.seconds.most_common(SHOWN):
                terminalreporter.write_line(f"{seconds:6.0f} s {name}")
        if lines := not_tested(
            self.skipped, self.partly, 0 if self.config.option.tested else self.left_out
        ):
            terminalreporter.section("not tested")
            for line in lines:
                terminalreporter.write_line(line)


def not_tested(skipped, partly, left_out):
    """Lines on what was not tested.

    `skipped` counts the tests of each reason, `partly` names the command of each
    notebook that ran without what the command adds, `left_out` counts the tests of
    later tiers.
    """
    commands = Counter()
    names = {}
    others = []
    for why, count in skipped.items():
        if found := needs.REASON.fullmatch(why):
            commands[found["command"]] += count
            names.setdefault(found["command"], set()).update(
                found["names"].split(" and ")
            )
        else:
            others.append(f"{_tests(count)} skipped: {why}")
    lines = [
        f"{_tests(n)} need `{command}`: {', '.join(sorted(names[command]))}"
        for command, n in sorted(commands.items())
    ]
    for command in sorted(set(partly.values())):
        which = " ".join(
            sorted(number for number, its in partly.items() if its == command)
        )
        lines.append(f"notebooks that ran without what `{command}` adds: {which}")
    return [
        *lines,
        *sorted(others),
        *(
            [f"{_tests(left_out)} more: `make test-all`, `make nightly`"]
            if left_out
            else []
        ),
    ]


def _tests(n):
    return f"{n:,} test{'s' * (n != 1)}"
