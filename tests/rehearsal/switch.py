"""Give this process its pretend GPU: patch each library right before or after Python
imports it.
"""

import ctypes
import importlib.util
import os
import sys
import time
from importlib.abc import Loader, MetaPathFinder

from tests.rehearsal import libraries, torch_cuda

BEFORE = {
    "torch": lambda: ctypes.CDLL(os.environ["REHEARSAL_LIBRARY"]),
    "torch.cuda": lambda: torch_cuda.fill(sys.modules["torch._C"]),
}
AFTER = {
    "torch": torch_cuda.finish,
    "torch.distributed.distributed_c10d": libraries.nccl,
    "torch._inductor.compile_fx": libraries.inductor,
    "numba.cuda": libraries.numba_cuda,
    "tensorflow": libraries.tensorflow,
    "kerneltrace.tiles": libraries.tiles,
    "labkit.core.results": libraries.results,
    "labkit.measure.readings": libraries.readings,
    "steptime.profile.chrome_trace": libraries.chrome_trace,
    "exercises.nb10.fusion": libraries.fusion,
}


class Finder(MetaPathFinder):
    """Finds what the other finders do, and patches it."""

    def __init__(self):
        self.finding = set()

    def find_spec(self, name, path=None, target=None):
        if name in self.finding or (name not in BEFORE and name not in AFTER):
            return None
        BEFORE.get(name, lambda: None)()
        self.finding.add(name)
        specs = (
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if finder is not self
        )
        spec = next((spec for spec in specs if spec is not None), None)
        self.finding.discard(name)
        if spec is not None and name in AFTER:
            spec.loader = Patched(spec.loader, AFTER[name])
        return spec


class Patched(Loader):
    """A loader that patches what it has loaded."""

    def __init__(self, loader, patch):
        self.loader = loader
        self.patch = patch

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.patch(module)


def on():
    time.perf_counter = torch_cuda.clock
    sys.meta_path.insert(0, Finder())
    for missing in set(libraries.WITHOUT) & {"cupy", "triton"}:
        sys.modules[missing] = None  # type: ignore[assignment]  # so that import and find_spec don't find it
    if "triton" not in libraries.WITHOUT:
        # it is looked for, and inductor and kernels of tiles are replaced: nothing
        # imports it
        usual = importlib.util.find_spec
        importlib.util.find_spec = lambda name, package=None: usual(
            "json" if name == "triton" else name, package
        )
