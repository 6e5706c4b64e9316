import os

import filelock
import pytest

from labkit.core import locked_file
from labkit.core.locked_file import Lines, append_line


def test_lines_come_back_in_order_and_damaged_ones_are_named(tmp_path):
    path = tmp_path / "new" / "numbers.txt"
    for line in ("1", "two", "3"):
        append_line(path, line)
    found, damaged = Lines(path, int, own=True).read()
    assert found == [1, 3]
    assert damaged == [
        "numbers.txt, line 2 is skipped: invalid literal for int() with base 10: 'two'"
    ]
    assert Lines(tmp_path / "none", int, own=True).read() == ([], [])


def test_a_line_is_never_glued_to_half_a_line(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2 of wh")
    append_line(path, "3")
    assert path.read_text() == "1\n2 of wh\n3\n"
    assert Lines(path, int, own=True).read()[0] == [1, 3]


def test_nothing_is_written_to_find_out_whether_a_file_can_be(tmp_path):
    append_line(tmp_path / "a.txt", "")
    assert (tmp_path / "a.txt").read_bytes() == b""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        # a folder inside a file: not even root can
        append_line(tmp_path / "file" / "a.txt", "")


def test_a_lock_that_is_not_given_back_is_waited_for_once(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    waits = []

    class Counted(filelock.FileLock):
        def __init__(self, *args, timeout, **more):
            waits.append(timeout)
            super().__init__(*args, timeout=min(timeout, 0.1), **more)

    held = filelock.FileLock(f"{path}.lock")
    monkeypatch.setattr(filelock, "FileLock", Counted)
    with held:
        for line in "123":
            append_line(path, line)
    append_line(path, "4")
    append_line(path, "5")
    assert waits == [locked_file._LOCK_S, 0, 0, 0, locked_file._LOCK_S]
    assert Lines(path, int, own=True).read()[0] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "error", [OSError("no locks available"), NotImplementedError("no flock")]
)
def test_a_file_system_without_locks_is_written_all_the_same(
    tmp_path, monkeypatch, error
):
    def refuse(*args, **more):
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    append_line(tmp_path / "a.txt", "1")
    assert (tmp_path / "a.txt").read_text() == "1\n"


def test_a_line_is_parsed_once(tmp_path):
    path = tmp_path / "a.txt"
    parsed = []

    def parse(line):
        parsed.append(line.strip())
        return int(line)

    lines = Lines(path, parse)
    assert lines.read() == ([], [])
    for n in range(1, 4):
        append_line(path, str(n))
        assert lines.read()[0] == list(range(1, n + 1))
        lines.read()
    assert parsed == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda path: path.write_text("7\n8\n9\n"), [7, 8, 9]),  # as long as before
        (lambda path: path.write_text("7\n"), [7]),
        (lambda path: path.unlink(), []),
        # the last line was half there
        (lambda path: path.write_text("1\n2\n30\n"), [1, 2, 30]),
        (lambda path: path.with_suffix(".new").write_text("7\n8\n3\n4\n") and path.with_suffix(".new").replace(path),
         [7, 8, 3, 4]),
    ],
)  # fmt: skip
def test_a_file_that_was_changed_before_its_end_is_read_anew(tmp_path, change, found):
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n3")
    os.utime(path, (1, 1))
    lines = Lines(path, int)
    assert lines.read()[0] == [1, 2, 3]
    change(path)
    assert lines.read()[0] == found


def test_many_reasons_end_in_few_sentences(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"no {n}\n" for n in range(3000)))
    _, damaged = Lines(path, int, own=True).read()
    assert len(damaged) == 6
    assert (
        damaged[-1]
        == "a.txt, 2,995 lines are skipped, the first is line 6: other reasons."
    )
