import concurrent.futures

import pytest

from labkit.core.locked_file import append_line, read_lines


def test_lines_come_back_in_order_and_damaged_ones_are_named(tmp_path):
    path = tmp_path / "new" / "numbers.txt"
    for line in ("1", "two", "3"):
        append_line(path, line)
    found, damaged = read_lines(path, int)
    assert found == [1, 3]
    assert damaged == ["numbers.txt, line 2 is skipped: invalid literal for int() with base 10: 'two'"]
    assert read_lines(tmp_path / "none", int) == ([], [])


def test_a_line_is_never_glued_to_half_a_line(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2 of wh")
    append_line(path, "3")
    assert path.read_text() == "1\n2 of wh\n3\n"
    assert read_lines(path, int)[0] == [1, 3]


def test_nothing_is_written_to_find_out_whether_a_file_can_be(tmp_path):
    append_line(tmp_path / "a.txt", "")
    assert (tmp_path / "a.txt").read_bytes() == b""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        append_line(tmp_path / "file" / "a.txt", "")  # a folder inside a file: not even root can


def test_lines_written_at_once_are_all_there(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: append_line(tmp_path / "a.txt", str(n)), range(40)))
    assert sorted(read_lines(tmp_path / "a.txt", int)[0]) == list(range(40))
