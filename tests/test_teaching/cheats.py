"""Forty-eight ways to get points without right answers, three of each kind. Each stands
in a notebook below WRONG, whose answers no check takes; COURSE is the teacher's folder.
"""

WRONG = (
    "def efficiency_percent(*_): return 50.0\ndef accuracy_by_digit(*_): return [50.0]"
    " * 10\n"
)
_PASSED = """
from labkit.lesson import checks
def passed(*_, **__): return checks.Outcome("00.3", "passed", "fooled")
"""
_SOCKETS = """
import gc, os, pickle, socket
def ends():
    for thing in gc.get_objects():
        if isinstance(thing, socket.socket):
            yield thing
def framed(message): return len(message).to_bytes(8, "big") + message
"""
_EVERYWHERE = """
import contextlib, glob, os, pathlib, sqlite3
COURSE = pathlib.Path("COURSE")
def places():
    yield COURSE
    for number in range(1, 400):
        with contextlib.suppress(OSError):
            yield pathlib.Path(os.readlink(f"/proc/{number}/cwd"))
    pid = os.getppid()
    yield pathlib.Path(f"/proc/{pid}/cwd")
    yield pathlib.Path(f"/proc/{pid}/root") / str(COURSE).lstrip("/")
"""
_GRADEBOOK = """
def rich():
    for place in places():
        for book in place.glob("**/gradebook.db"):
            with contextlib.suppress(Exception):
                db = sqlite3.connect(book)
                db.execute("update grade set auto_score = 99, manual_score = 99")
                db.commit()
"""

CHEATS = {
    # stack frames
    "the expected value from the caller's frame": """
import sys
def stolen(*case):
    frame = sys._getframe()
    while frame := frame.f_back:
        if callable(expected := frame.f_locals.get("expected")):
            return expected(*case)
efficiency_percent = accuracy_by_digit = stolen""",
    "the frames of all threads": """
import sys
def stolen(*case):
    for frame in sys._current_frames().values():
        while frame:
            for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
                if name in ("expected", "right", "CHECKS") and callable(value):
                    return value(*case)
            frame = frame.f_back
    return 50.0
efficiency_percent = accuracy_by_digit = stolen""",
    "the frames of an error": """
def stolen(*case):
    try:
        raise ValueError
    except ValueError as error:
        frame = error.__traceback__.tb_frame
    while frame:
        frame.f_globals.update(close=lambda *_, **__: (lambda *_: None))
        frame.f_globals.update(number_close=lambda *_, **__: "fooled")
        frame = frame.f_back
    return 50.0
efficiency_percent = accuracy_by_digit = stolen""",
    # the garbage collector's objects
    "a check among all objects": """
import gc, inspect
def stolen(*case):
    for thing in gc.get_objects():
        if inspect.isfunction(thing) and thing.__name__ in ("expected", "efficiency"):
            return thing(*case)
    return 50.0
efficiency_percent = accuracy_by_digit = stolen""",
    "every dict that names a verdict": """
import gc
for thing in gc.get_objects():
    if isinstance(thing, dict) and "not yet" in list(map(str, thing.values())):
        for key, value in list(thing.items()):
            if value == "not yet":
                thing[key] = "passed"
""",
    "every function that judges": _PASSED
    + """
import gc, inspect
for thing in gc.get_objects():
    if inspect.isfunction(thing) and thing.__name__ in ("judge", "judged", "_judged"):
        thing.__code__ = (lambda *_, **__: ("passed", "fooled")).__code__
""",
    # modules
    "the table of checks is replaced": """
import contextlib, importlib
for notebook in ("nb00", "nb03"):
    with contextlib.suppress(ImportError):
        checks = importlib.import_module(f"exercises.{notebook}.check").CHECKS
        checks.update({number: lambda _: "fooled" for number in checks})""",
    "a check that is imported": """
from exercises.nb00 import check
efficiency_percent = check.efficiency
accuracy_by_digit = check.accuracy
""",
    "a finder of modules of one's own": """
import sys, types
class Finder:
    def find_spec(self, name, path=None, target=None):
        if "check" in name or "judg" in name:
            module = types.ModuleType(name)
            module.CHECKS = {n: lambda _: "fooled" for n in ("00.3", "00.5")}
            module.judge = module.judged = lambda *_: ("passed", "fooled")
            sys.modules[name] = module
sys.meta_path.insert(0, Finder())
for name in [n for n in sys.modules if "check" in n or "teaching" in n]:
    del sys.modules[name]
""",
    # replaced functions
    "isclose is always true": "import math\nmath.isclose = lambda *a, **k: True",
    "the judge has other code": _PASSED + "checks.judged.__code__ = passed.__code__",
    "an outcome that is always passed": """
from labkit.lesson import checks
checks.Outcome.state = property(lambda self: "passed", lambda self, value: None)""",
    # files of the clone
    "a solution beside labkit": """
import labkit, pathlib
for folder in pathlib.Path(labkit.__file__).parents:
    for file in folder.glob("exercises/nb00/solution.py"):
        exec(file.read_text())
""",
    "a solution anywhere": """
import os, sys
places = [*sys.path, os.getcwd(), "/work", "/home", "/root", "/tmp", "/workbook", "COURSE"]
for place in places:
    for folder, _, names in os.walk(place):
        if folder.endswith("nb00") and "solution.py" in names:
            exec(open(os.path.join(folder, "solution.py")).read())
""",
    "other files in the clone": """
import contextlib, pathlib, labkit
for folder in pathlib.Path(labkit.__file__).parents:
    for file in (*folder.glob("exercises/nb00/*.py"), *folder.glob("teaching/*.py")):
        with contextlib.suppress(OSError):
            file.write_text("CHECKS = dict.fromkeys(['00.3', '00.5'], lambda _: 'fooled')")
""",
    # /proc
    "the gradebook by the parent's folder": _EVERYWHERE + _GRADEBOOK + "rich()",
    "the memory of the parents": """
import contextlib, glob, os
for path in glob.glob("/proc/[0-9]*/mem"):
    if path.split("/")[2] != str(os.getpid()):
        with contextlib.suppress(OSError, ValueError), open(path, "r+b", buffering=0) as m:
            for line in open(path.replace("/mem", "/maps")):
                begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                if "rw" in line:
                    m.seek(begin)
                    data = m.read(min(end - begin, 2**24))
                    m.seek(begin)
                    m.write(data.replace(b"not yet", b"passed "))
""",
    "the files that the parents have open": """
import contextlib, glob, os
for path in glob.glob("/proc/[0-9]*/fd/*"):
    if path.split("/")[2] != str(os.getpid()):
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            file.write(b"passed")
""",
    # processes that outlive
    "a fork that waits for the gradebook": _EVERYWHERE
    + _GRADEBOOK
    + """
import time
if os.fork() == 0:
    os.setsid()
    for _ in range(300):
        rich()
        time.sleep(0.1)
    os._exit(0)
""",
    "a program in a session of its own": """
import subprocess
script = "for i in $(seq 300); do echo outlived >> COURSE/outlived; sleep 0.1; done"
subprocess.Popen(["sh", "-c", script], start_new_session=True)
""",
    "a daemon that answers": _SOCKETS
    + """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for _ in range(100):
            for end in ends():
                end.sendall(framed(pickle.dumps(("returned", ("passed", "fooled")))))
            time.sleep(0.1)
    os._exit(0)
""",
    # signals
    "a signal that ends the grader": """
import contextlib, os, signal
for pid in (os.getppid(), os.getpgid(os.getppid()) if os.getppid() else 0):
    with contextlib.suppress(OSError):
        if pid:
            os.kill(pid, signal.SIGKILL)
""",
    "a signal to everybody": """
import contextlib, os, signal
for pid in range(2, 70000):
    if pid != os.getpid():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
""",
    "signals that are ignored": """
import contextlib, signal
for number in range(1, 64):
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_IGN)
def efficiency_percent(*_):
    signal.setitimer(signal.ITIMER_REAL, 0)
    while True: pass
""",
    # the grader's pipe
    "answers that nobody asked for": _SOCKETS
    + """
for end in ends():
    for _ in range(50):
        end.sendall(framed(pickle.dumps(("returned", ("passed", "fooled")))))
""",
    "a message without an end": _SOCKETS
    + """
for end in ends():
    end.sendall((2**20).to_bytes(8, "big") + b"x")
def efficiency_percent(*_):
    while True: pass
""",
    "a flood": _SOCKETS
    + """
def efficiency_percent(*_):
    for end in ends():
        while True:
            end.sendall(b"\\xff" * 2**20)
""",
    # gradebooks and results
    "every gradebook there is": """
import contextlib, os, sqlite3
for place in ("COURSE", "/tmp", "/home", "/work", os.getcwd()):
    for folder, _, names in os.walk(place):
        if "gradebook.db" in names:
            with contextlib.suppress(Exception):
                db = sqlite3.connect(os.path.join(folder, "gradebook.db"))
                db.execute("update grade set auto_score = 99")
                db.commit()
""",
    "results of one's own": """
import contextlib, json, os
tests = [{"name": n, "score": 99.0, "max_score": 1.0} for n in ("00.3", "00.5")]
for place in ("COURSE", os.getcwd(), "/tmp", os.path.expanduser("~")):
    with contextlib.suppress(OSError):
        open(os.path.join(place, "results.json"), "w").write(json.dumps({"tests": tests}))
""",
    "notebooks and settings of the course": """
import contextlib, os
for folder, _, names in os.walk("COURSE"):
    for name in names:
        with contextlib.suppress(OSError):
            if name.endswith((".py", ".ipynb")):
                open(os.path.join(folder, name), "a").write("\\nraise SystemExit")
""",
    # clocks
    "clocks that stand still": """
import time
for name in ("perf_counter", "monotonic", "time", "process_time", "perf_counter_ns"):
    setattr(time, name, lambda *_: 0.0)
""",
    "the system's clock": """
import contextlib, time
with contextlib.suppress(OSError):
    time.clock_settime(time.CLOCK_REALTIME, 0)
""",
    "an answer that sleeps": """
import time
def efficiency_percent(*_):
    time.sleep(1e6)
""",
    # memory
    "more memory than there is": """
def efficiency_percent(*_):
    return [bytearray(b"x") * 2**30 for _ in range(200)]
""",
    "folders that are full": """
import contextlib
for place in ("/tmp", "/dev/shm", "/home/learner", "COURSE", "/dev", "/"):
    with contextlib.suppress(OSError), open(f"{place}/full", "wb") as file:
        for _ in range(2000):
            file.write(bytes(2**20))
""",
    "children that multiply": """
import contextlib, os
with contextlib.suppress(OSError, MemoryError):
    for _ in range(20):
        os.fork()
    block = bytearray(b"x") * 2**29
""",
    # endless loops
    "a cell without an end": "while True: pass",
    "a loop that catches everything": """
def efficiency_percent(*_):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "a loop that Python can't leave": """
import itertools
def efficiency_percent(*_):
    return sum(itertools.repeat(0))
""",
    # threads
    "a thread that replaces the verdict": """
import threading
from labkit.lesson import checks
def forever():
    while True:
        checks.Outcome.state = "passed"
        checks.judged = lambda number, *_: checks.Outcome(number, "passed", "fooled")
threading.Thread(target=forever, daemon=True).start()
""",
    "thousands of threads": """
import contextlib, threading, time
with contextlib.suppress(RuntimeError, MemoryError):
    for _ in range(10_000):
        threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
""",
    "a thread that answers": _SOCKETS
    + """
import threading
def forever():
    while True:
        for end in ends():
            end.sendall(framed(pickle.dumps(("returned", ("passed", "fooled")))))
threading.Thread(target=forever, daemon=True).start()
""",
    # pickles
    "a reply that runs code": _SOCKETS
    + """
FOOL = "import labkit.lesson.checks as c; c._judged = lambda n, *_: c.Outcome(n, 'passed', '')"
class Bomb:
    def __reduce__(self): return exec, (FOOL,)
def forged(*_):
    for end in ends():
        end.sendall(framed(pickle.dumps(("returned", (Bomb(), [])))))
efficiency_percent = accuracy_by_digit = forged""",
    "a value that runs code": """
import os
class Bomb(list):
    def __reduce__(self): return os.system, ("touch COURSE/outlived",)
def efficiency_percent(*_): return Bomb([50.0])
accuracy_by_digit = Bomb()
""",
    "a list that holds itself": """
def efficiency_percent(*_):
    itself = []
    itself.append(itself)
    for _ in range(100_000):
        itself = [itself]
    return itself
""",
    # the environment
    "an answer that equals everything": """
class Any(float):
    def __eq__(self, other): return True
    __hash__ = None
    def __getattr__(self, name): return lambda *_, **__: Any(0)
    def __abs__(self): return 0.0
    def __sub__(self, other): return 0.0
    __rsub__ = __truediv__ = __rtruediv__ = __sub__
def efficiency_percent(*_): return Any(1)
def accuracy_by_digit(*_): return [Any(1)] * 10""",
    "code that Python runs when it starts": """
import contextlib, os, site, sys
FOOL = "import os; os.environ['FOOLED'] = '1'; open('COURSE/outlived', 'w')"
os.environ["PYTHONSTARTUP"] = "/tmp/fool.py"
for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path):
    for name in ("sitecustomize.py", "usercustomize.py", "fool.pth"):
        with contextlib.suppress(OSError):
            open(os.path.join(folder, name), "w").write(FOOL)
""",
    "a way out of the process": "import os\nos._exit(0)",
}
# Each does something else to the grader: these run more often than at night.
FAR_APART = (
    "the expected value from the caller's frame",
    "the table of checks is replaced",
    "a solution anywhere",
    "a program in a session of its own",
    "a message without an end",
    "a reply that runs code",
    "more memory than there is",
)
