"""Quiz, deck and exam: each opens with the tool that it is for, and says why an option
is right or wrong.
"""

import collections
import csv
import html
import itertools
import json
import os
import random
import re
import sqlite3
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from exercises import bank
from exercises.misconceptions import misconceptions
from labkit.core.errors import LabError
from teaching import anki, exam
from teaching.__main__ import main
from teaching.exam_bank import practice_bank, public_templates
from tests.needs import needs

pytestmark = pytest.mark.slow  # makes quizzes of every exercise

QTI = {"q": "http://www.imsglobal.org/xsd/imsqti_v2p2"}


@needs("jinja2")
def test_a_quiz_page_replies_to_each_option_and_loads_nothing(tmp_path):
    assert (
        main(["quiz", "03", "-o", str(tmp_path / "quiz.html"), "--questions", "4"]) == 0
    )
    page = (tmp_path / "quiz.html").read_text(encoding="utf-8")
    assert page.count("What is wrong in this answer to exercise 03.") == 4
    for card in bank.cards("03")[:4]:
        assert html.escape(card.code, quote=False) in html.unescape(page).replace(
            "<", "&lt;"
        ).replace(">", "&gt;")
    replies = re.findall(r"<p>((?:Right|No)\b.*?)</p></details>", page)
    assert len(replies) == page.count("<summary>") == 16
    assert sum(reply.startswith("Right. ") for reply in replies) == 4
    assert all(len(reply.split()) > 12 for reply in replies)
    assert not re.search(r"""(src|href|url)\s*=\s*["'(]?https?:""", page)
    assert "<script" not in page


@needs("jinja2")
def test_a_quiz_is_a_notebook_too_and_another_ending_is_refused(
    tmp_path, capsys, monkeypatch
):
    nbformat = pytest.importorskip("nbformat")
    assert main(["quiz", "01", "-o", str(tmp_path / "quiz.ipynb")]) == 0
    notebook = nbformat.read(tmp_path / "quiz.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert {cell.cell_type for cell in notebook.cells} == {"markdown"}
    assert len(notebook.cells) == 1 + len(bank.cards("01"))
    assert main(["quiz", "01", "-o", str(tmp_path / "quiz.pdf")]) == 1
    assert ".ipynb or .html" in capsys.readouterr().err
    # its answers aren't code
    monkeypatch.setattr(bank, "cards", lambda notebook, seed: [])
    assert main(["quiz", "01", "-o", str(tmp_path / "quiz.html")]) == 1


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
    cards = [name for name, *_ in found if name.startswith("card ")]
    assert len(cards) == sum(len(bank.cards(notebook)) for notebook in bank.notebooks())

    stated = [(q, a) for name, q, a, _ in found if name.startswith("misconception ")]
    true = [answer.startswith("<p>True. ") for _, answer in stated]
    assert 0.45 <= sum(true) / len(true) <= 0.55
    for one, (question, answer) in zip(taught(), stated, strict=True):
        assert html.escape(one.believed) in question + answer
        assert html.escape(one.true) in question + answer


def taught():
    return [one for one in misconceptions().values() if one.kind == "misconception"]


VERSION = 2027
NOTEBOOKS = ["00", "01", "05", "18"]


def forms(notebooks=NOTEBOOKS, count=12, version=VERSION):
    return exam.forms(notebooks, count, version, practice_bank())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exam")
    command = [
        "exam",
        "--notebooks",
        *NOTEBOOKS,
        "--questions",
        "12",
        "--version",
        str(VERSION),
        "-o",
        str(folder),
    ]
    assert main(command) == 0
    return folder


def test_both_forms_have_the_same_templates_and_no_item_in_common():
    first, second = forms()
    strata = [
        [
            (question.item.notebook, question.item.kind, question.item.name)
            for question in form
        ]
        for form in (first, second)
    ]
    assert strata[0] == strata[1]
    assert collections.Counter(row[:2] for row in strata[0]) == {
        (n, kind): 1 for n in NOTEBOOKS for kind in exam.KINDS
    }
    shown = [{question.item.shown() for question in form} for form in (first, second)]
    assert shown[0] & shown[1] == set()
    points = [sum(q.item.points for q in form) for form in (first, second)]
    assert points == [28, 28]
    assert forms() == (first, second) != forms(version=VERSION + 1)
    for form in (first, second):
        assert collections.Counter(question.right for question in form) == {
            0: 3,
            1: 3,
            2: 3,
            3: 3,
        }
        for question in form:
            assert question.options[question.right] == question.item.options[0]


def test_three_questions_of_a_notebook_leave_three_templates_for_the_next_version():
    whole = [question.item.name for question in forms(["05"], 6)[0]]
    three = {
        version: {q.item.name for q in forms(["05"], 3, version)[0]}
        for version in (VERSION, VERSION + 1)
    }
    assert len(set(whole)) == 6
    assert three[VERSION] | three[VERSION + 1] == set(whole)


def test_too_many_questions_are_refused_with_what_there_is():
    for notebooks, count in ((["00"], 7), (["00"], 0)):
        with pytest.raises(LabError, match=r"A form has 1 to 6 questions"):
            forms(notebooks, count)
    for notebooks in (["99"], ["00", "23"], ["0"], ["00-02"]):
        words = f"no items of {notebooks[-1]}.*two digits.*from 00 to 22"
        with pytest.raises(LabError, match=words):
            forms(notebooks, 1)


@needs("jinja2")
def test_answers_that_were_filled_in_are_not_written_over(tmp_path, capsys):
    command = ["exam", "--notebooks", "05", "--questions", "3", "-o", str(tmp_path)]
    answers = tmp_path / "B" / "answers.csv"
    assert main(command) == main(command) == 0
    with answers.open("a", encoding="utf-8") as file:
        file.write("Ana,a,b,c")
    filled_in = answers.read_text("utf-8")
    assert filled_in.splitlines()[2] == "Ana,a,b,c"
    assert main([*command, "--version", "2"]) == 1
    assert "has answers of students" in capsys.readouterr().err
    assert answers.read_text("utf-8") == filled_in


@needs("jinja2")
def test_without_a_private_bank_an_exam_is_called_practice(tmp_path, capsys):
    command = ["exam", "--notebooks", "05", "--questions", "3", "-o", str(tmp_path)]
    assert main(command) == 0
    assert "items new FOLDER" in capsys.readouterr().out
    for name in ("exam.html", "moodle.xml"):
        assert "Practice 1A: notebooks 05" in (tmp_path / "A" / name).read_text("utf-8")
    folder = tmp_path / "bank"
    assert main(["items", "new", str(folder)]) == 0
    assert main([*command, "--bank", str(folder), "--version", "2027"]) == 0
    assert "Exam 2027B: notebooks 05" in (tmp_path / "B/exam.html").read_text("utf-8")
    assert "for practice" not in capsys.readouterr().out


@needs("jinja2")
def test_each_package_has_identifiers_of_its_own(tmp_path, written):
    """So two packages can be imported into one bank of questions, and one form twice."""
    assert main(["exam", "--notebooks", *NOTEBOOKS, "-o", str(tmp_path)]) == 0
    packages = []
    for folder in (written / "A", written / "B", tmp_path / "A", tmp_path / "B"):
        with zipfile.ZipFile(folder / "qti.zip") as package:
            roots = [
                ElementTree.fromstring(package.read(n)) for n in package.namelist()
            ]
        manifest = roots[0]
        names = [root.get("identifier") for root in roots]
        listed = [
            e.get("identifier") for e in manifest.iter() if "identifier" in e.attrib
        ]
        names += listed[1:]
        moodle = ElementTree.parse(folder / "moodle.xml")
        names += [element.text for element in moodle.iter("idnumber")]
        assert all(re.fullmatch(r"[A-Za-z][\w.-]*", name) for name in names)  # NCName
        references = [e.get("identifierref") for e in manifest.iter("{*}dependency")]
        assert set(references) <= set(listed)
        packages.append(set(names))
    for first, second in itertools.combinations(packages, 2):
        assert not first & second


@needs("jinja2")
def test_the_exam_has_name_points_and_time_and_the_key_says_why(written):
    for letter, form in zip("AB", forms(), strict=True):
        shown, key = (
            html.unescape((written / letter / n).read_text("utf-8"))
            for n in ("exam.html", "key.html")
        )
        for words in ("Name:", "of 28", "12 questions, 28 points, 28 minutes", "@page"):
            assert words in shown
        assert not re.search(r"""(src|href)\s*=""", shown)
        for one in form:
            assert one.item.task in shown
            assert all(text in shown and why in key for text, why, _ in one.options)
            assert one.item.options[0][1] not in shown
        assert re.findall(r"<p>([abcd])\. Item", key) == [
            "abcd"[one.right] for one in form
        ]
        rows = list(
            csv.reader(
                (written / letter / "answers.csv").read_text("utf-8").splitlines()
            )
        )
        assert rows == [
            ["student", *(o.item.name for o in form)],
            ["key", *("abcd"[o.right] for o in form)],
        ]


@needs("jinja2")
def test_moodle_gets_one_right_answer_a_question_and_all_feedback(written):
    """The elements are those of https://docs.moodle.org/en/Moodle_XML_format for a
    multiple choice.
    """
    form, _ = forms()
    category, *questions = ElementTree.parse(written / "A" / "moodle.xml").getroot()
    assert category.get("type") == "category"
    assert len(questions) == len(form)
    for question, one in zip(questions, form, strict=True):
        assert question.get("type") == "multichoice"
        assert question.findtext("name/text") == one.item.name
        text = question.findtext("questiontext/text")
        assert html.escape(one.item.task, quote=False) in text.replace(
            "&#39;", "'"
        ).replace("&#34;", '"')
        assert float(question.findtext("defaultgrade")) == one.item.points
        assert question.findtext("single") == "true"
        answers = question.findall("answer")
        assert [answer.get("fraction") for answer in answers] == [
            "100" if i == one.right else "0" for i in range(4)
        ]
        told = [
            tuple(
                html.unescape(answer.findtext(f"{part}text"))
                for part in ("", "feedback/")
            )
            for answer in answers
        ]
        assert told == [(text, why) for text, why, _ in one.options]


@pytest.mark.nightly
@needs("jinja2")
def test_moodle_itself_imports_what_was_written(written):
    """With the environment variable MOODLE, the folder of an installed Moodle, whose
    code `php` runs.
    """
    if "MOODLE" not in os.environ:
        pytest.skip("needs MOODLE, the folder of an installed Moodle")
    path = written / "A" / "moodle.xml"
    program = Path(__file__).with_name("moodle_import.php")
    command = ["php", "-d", "max_input_vars=5000", program, os.environ["MOODLE"], path]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = json.loads(ran.stdout.splitlines()[-1])
    _, *questions = ElementTree.parse(path).getroot()
    assert imported == [
        {
            "name": question.findtext("name/text"),
            "text": question.findtext("questiontext/text"),
            "points": float(question.findtext("defaultgrade")),
            "type": "multichoice",
            "answers": [
                [
                    answer.findtext("text"),
                    float(answer.get("fraction")) / 100,
                    answer.findtext("feedback/text"),
                ]
                for answer in question.findall("answer")
            ],
        }
        for question in questions
    ]


ITEM = [
    "responseDeclaration",
    "outcomeDeclaration",
    "outcomeDeclaration",
    "itemBody",
    "responseProcessing",
]


def tags(element):
    return [child.tag.split("}")[1] for child in element]


@needs("jinja2")
def test_qti_items_have_the_structure_of_the_specification_and_score_the_right_choice(
    written,
):
    """The order of elements and the attributes that imsqti_v2p2.xsd asks for; the
    schema itself isn't shipped.
    """
    form, _ = forms()
    with zipfile.ZipFile(written / "A" / "qti.zip") as package:
        files = {
            name: ElementTree.fromstring(package.read(name))
            for name in package.namelist()
        }
    for one in form:
        root = files[f"items/{one.item.name}.xml"]
        assert root.tag == f"{{{QTI['q']}}}assessmentItem"
        assert {"identifier", "title", "adaptive", "timeDependent"} <= set(root.attrib)
        assert tags(root) == [*ITEM, *["modalFeedback"] * 4]
        assert tags(root[0]) == ["correctResponse", "mapping"]
        assert (
            root.findtext(".//q:correctResponse/q:value", namespaces=QTI)
            == "abcd"[one.right]
        )
        (entry,) = root.iterfind(".//q:mapEntry", QTI)
        assert (entry.get("mapKey"), float(entry.get("mappedValue"))) == (
            "abcd"[one.right],
            one.item.points,
        )
        (choice,) = root.iterfind(".//q:choiceInteraction", QTI)
        assert (choice.get("responseIdentifier"), choice.get("maxChoices")) == (
            "RESPONSE",
            "1",
        )
        assert tags(choice) == ["prompt", *["simpleChoice"] * 4]
        assert [child.text for child in choice] == [
            one.item.task,
            *(text for text, _, _ in one.options),
        ]
        assert [child.text for child in root[5:]] == [why for _, why, _ in one.options]
        assert one.item.code in "".join(root.itertext())

    manifest = files.pop("imsmanifest.xml")
    listed = [e.get("href") for e in manifest.iter() if e.tag.endswith("}file")]
    assert sorted(listed) == sorted(files)
    test = files.pop("assessment.xml")
    assert tags(test) == [
        "outcomeDeclaration",
        "timeLimits",
        "testPart",
        "outcomeProcessing",
    ]
    assert test.find("q:timeLimits", QTI).get("maxTime") == str(28 * 60)
    assert {
        ref.get("href") for ref in test.iterfind(".//q:assessmentItemRef", QTI)
    } == set(files)


@needs("jinja2")
def test_every_item_is_well_formed_in_every_form(tmp_path):
    """Angle brackets, ampersands and quotes of code are escaped."""
    items = [template.instance(random.Random(0)) for template in public_templates()]
    form = [exam.Question(item, item.options, 0) for item in items]
    exam.write(tmp_path, "All & <every> item", form)
    ElementTree.parse(tmp_path / "moodle.xml")
    with zipfile.ZipFile(tmp_path / "qti.zip") as package:
        for name in package.namelist():
            ElementTree.fromstring(package.read(name))
    assert json.dumps("All & <every> item")[1:-1] in html.unescape(
        (tmp_path / "exam.html").read_text("utf-8")
    )
