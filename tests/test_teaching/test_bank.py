"""Quiz, deck and exam: each opens with the tool that it is for, and says what the exercises' checks say."""

import json
import re
import sqlite3
import zipfile

import pytest

from exercises import bank
from labkit.lesson import checks
from teaching import anki, exam, quiz
from teaching.__main__ import main
from tests.needs import needs

pytestmark = pytest.mark.slow  # makes quizzes and exams of every exercise


@needs("jupyterquiz")
def test_a_quiz_has_jupyterquizs_form_and_loads_nothing(tmp_path):
    asked = quiz.questions("01")
    assert len(asked) == len(bank.cards("01")) + len(bank.choices("01"))
    for question in asked:
        assert question["type"] == "multiple_choice"
        assert len(question["answers"]) == 4
        assert [answer["correct"] for answer in question["answers"]].count(True) == 1
        assert all(answer["feedback"] and ("answer" in answer) != ("code" in answer) for answer in question["answers"])
    assert main(["quiz", "01", "-o", str(tmp_path / "quiz.html"), "--questions", "4"]) == 0
    page = (tmp_path / "quiz.html").read_text(encoding="utf-8")
    assert page.count("What is wrong in this answer to exercise 01.") == 4
    assert not re.search(r"""(src|href|url)\s*=\s*["'(]?https?:""", page)


@needs("jupyterquiz")
def test_a_quiz_is_a_notebook_that_shows_its_questions_unrun(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    assert main(["quiz", "01", "-o", str(tmp_path / "quiz.ipynb")]) == 0
    notebook = nbformat.read(tmp_path / "quiz.ipynb", as_version=4)
    nbformat.validate(notebook)
    compile(notebook.cells[1].source, "quiz", "exec")
    assert [set(output.data) for output in notebook.cells[1].outputs] == [{"text/html"}, {"application/javascript"}]


def test_a_quiz_of_code_with_angle_brackets_is_escaped():
    codes = [question["code"] for question in quiz.questions("03") if "code" in question]
    assert any("&lt;" in code for code in codes)
    assert not any("<" in code for code in codes)


@pytest.mark.slow
def test_a_quiz_without_questions_or_with_another_ending_is_refused(tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(quiz, "questions", lambda notebook, seed: [])  # as of a notebook whose answers aren't code
        assert main(["quiz", "01", "-o", str(tmp_path / "quiz.html")]) == 1
    assert main(["quiz", "01", "-o", str(tmp_path / "quiz.pdf")]) == 1
    assert ".ipynb or .html" in capsys.readouterr().err


@needs("genanki")
def test_a_deck_opens_and_a_later_one_updates_its_notes(tmp_path):
    found = anki.notes()
    guids = []
    for name in ("one.apkg", "two.apkg"):
        anki.write(tmp_path / name, found)
        with zipfile.ZipFile(tmp_path / name) as package:
            package.extract("collection.anki2", tmp_path)
        with sqlite3.connect(tmp_path / "collection.anki2") as collection:
            rows = collection.execute("select guid, flds from notes").fetchall()
        (tmp_path / "collection.anki2").unlink()
        assert len(rows) == len(found) == len({guid for guid, _ in rows})
        guids.append(sorted(guid for guid, _ in rows))
    assert guids[0] == guids[1]
    assert sum(name.startswith("card ") for name, *_ in found) == sum(len(bank.cards(n)) for n in bank.notebooks())


@pytest.mark.slow
def test_an_exam_is_the_same_for_its_seed_and_another_for_another():
    one = exam.questions(["01"], 8, 7)
    assert one == exam.questions(["01"], 8, 7)
    assert one != exam.questions(["01"], 8, 8)
    assert len({question.code or question.options for question in one}) == 8
    assert any(question.as_code for question in one)


def test_the_key_names_what_the_check_says_and_the_exam_does_not(tmp_path):
    assert main(["exam", "--notebooks", "00", "01", "--questions", "8", "--seed", "7", "-o", str(tmp_path / "a")]) == 0
    asked = exam.questions(["00", "01"], 8, 7)
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "a").iterdir()}
    assert sorted(pages) == ["exam.html", "exam.ipynb", "key.html", "key.ipynb"]
    assert "The check says" not in pages["exam.html"] + pages["exam.ipynb"]
    letters = re.findall(r"<b>([abcd])\.</b>", pages["key.html"])
    assert letters == ["abcd"[question.right] for question in asked]
    in_notebook = [
        re.findall(r"\*\*([abcd])\.\*\*", cell["source"]) for cell in json.loads(pages["key.ipynb"])["cells"]
    ]
    assert [letter for found in in_notebook for letter in found] == letters


def test_an_answer_that_its_check_does_not_reject_is_left_out_of_an_exam(monkeypatch):
    passed = checks.Outcome("01.1", "passed", "fine")
    monkeypatch.setattr(exam, "judged", lambda number, answer: passed)
    with pytest.raises(exam.LabError, match="but 8 were asked for"):
        exam.questions(["01"], 8, 7)
