"""A file that another process writes is read line by line, whatever becomes of it."""

from __future__ import annotations

from pathlib import Path

from grpo_exp.reporting.tail import Tail


def test_lines_are_taken_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []  # there is no file yet
    path.write_bytes(b"one\ntw")
    assert tail.read() == [b"one"]
    path.write_bytes(b"one\ntwo\nthree\n")
    assert tail.read() == [b"two", b"three"]
    assert tail.read() == []


def test_what_stands_there_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    tail = Tail(path, from_start=False)
    with path.open("ab") as stream:
        stream.write(b"two\n")
    assert tail.read() == [b"two"]


def test_file_that_was_cut_back_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    path.write_bytes(b"one\n")
    assert tail.read() == [b"one"]


def test_another_file_of_the_name_is_read_from_its_start_even_if_it_is_longer(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    tail = Tail(path)
    tail.read()
    (tmp_path / "other").write_bytes(b"1\n2\n3\n")
    (tmp_path / "other").replace(path)
    assert tail.read() == [b"1", b"2", b"3"]
