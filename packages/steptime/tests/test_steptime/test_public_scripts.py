"""Public training scripts, each with one line added: one page, and the training goes on
as it was.

STEPTIME_PUBLIC_SCRIPTS names a folder with copies of their repositories; without it,
git fetches what is needed into `build`. `make frameworks` installs what they import.
"""

import importlib.util
import re
import resource
import subprocess
import sys

import pytest

from test_steptime.public_scripts import SCRIPTS

# minutes each, and more on a busy machine
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
STATE = "State at the end: "
# Registered before steptime is imported, this is the last that runs at the exit.
RUN = f"""
import atexit, gc, runpy, sys, threading
import torch
from torch.optim import optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

def state():
    return {{
        "hooks": len(optimizer._global_optimizer_post_hooks),
        "loader": DataLoader.__iter__.__qualname__,
        "iterator": _BaseDataLoaderIter.__next__.__qualname__,
        "collector": (gc.isenabled(), len(gc.callbacks)),
        "switch interval": sys.getswitchinterval(),
        "modes": torch._C._len_torch_dispatch_stack(),
        "threads": (threading.active_count(), torch.get_num_threads()),
    }}

atexit.register(lambda: print("{STATE}", state()))
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(script, folder):
    """What the script prints, and the seconds of a processor that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *script.command(folder)],
        cwd=(folder / script.script).parent,
        env=script.environment(folder),
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "terminate called" not in ran.stderr
    return ran.stdout, cpu_s


def page_of(printed):
    """The page among what a script prints: from its verdict on."""
    lines = printed.splitlines()
    (watched,) = (i for i, line in enumerate(lines) if line.startswith("Watched: "))
    heading = max(i for i in range(watched) if lines[i].startswith("limit  "))
    return lines[heading - 1 :]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_public_script_with_one_line_more_has_one_page(script, tmp_path):
    for name in script.needs:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"make frameworks installs {name}")
    plain = tmp_path / "plain"
    watched = tmp_path / "watched"
    for folder in (plain, watched):
        script.copy(folder)
    script.watch(watched)
    without, without_s = run(script, plain)
    printed, with_s = run(script, watched)
    page = page_of(printed)
    print(f"\n{script.name}: {without_s:.1f} s of a processor, {with_s:.1f} s watched")
    print("\n".join(page[:20]))

    losses = re.findall(script.losses, printed)
    assert losses
    assert losses == re.findall(script.losses, without)
    assert printed.partition(STATE)[2] == without.partition(STATE)[2] != ""
    shares = [re.search(r"  (\d+)%  ", line) for line in page]
    percent = [int(share[1]) for share in shares if share is not None]
    assert sum(percent) == pytest.approx(100, abs=len(percent))
    place = re.search(r"Most of it: .+ \((\S+), line \d+\)", page[0])
    assert place is not None
    assert place[1] in {path.name for path in watched.rglob("*.py")}
