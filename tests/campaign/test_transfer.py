"""Answers from and to a file: what goes out comes in again, and what is wrong is named with its line."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import AUDIT, Questions
from anneal.campaign.transfer import take_in, write_out
from anneal.errors import AnnealError, UsageError
from anneal.pairs import Pairs, Verdict
from anneal.settings import Plan

SIMILAR, DISSIMILAR, UNSURE = Verdict
NAMES = (
    "a, b/comma, too.png",
    'quo"te"d.png',
    "Äcker/Flüße – 田.png",
    "line\nbreak.png",
    "line\u2028separator\u0085.png",
    " leading and trailing .png",
    "12.png",
    "plain.png",
)

Judged = list[tuple[str, str, int, str]]
both_kinds = pytest.mark.parametrize("suffix", [".csv", ".jsonl"])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("odd")
    for number, name in enumerate(NAMES):
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    return open_archive(folder / "in", 8, folder / "cache")


Make = Callable[[str], Campaign]


@pytest.fixture
def make(tmp_path: Path, archive: Archive) -> Iterator[Make]:
    """A new campaign in a folder of this name."""
    with ExitStack() as stack:

        def make(name: str) -> Campaign:
            made = Campaign.create(tmp_path / name, archive, Plan(px=8), np.arange(len(archive)))
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def campaign(make: Make) -> Campaign:
    return make("campaign")


def judged(campaign: Campaign) -> Judged:
    """What stands, by the names of the images."""
    paths = campaign.archive().paths
    return [(paths[row.a], paths[row.b], row.verdict, row.annotator) for row in campaign.store.standing()]


def answered(campaign: Campaign) -> Judged:
    """Every image beside every other, by people with odd names."""
    n = len(campaign.archive())
    people = ("me", "Ann, née O'Brien", '"Bob"', "李\r雷\n")
    for number, (a, b) in enumerate(combinations(range(n), 2)):
        campaign.answer(a, b, Verdict(1 + number % 3), people[number % 4])
    return judged(campaign)


# -- there and back --------------------------------------------------------------------------------


@both_kinds
def test_what_is_written_out_is_taken_in_as_it_was(make: Make, tmp_path: Path, suffix: str) -> None:
    one, other = make("one"), make("other")
    said = answered(one)
    assert write_out(one, tmp_path / f"answers{suffix}") == len(said) == 28
    assert take_in(other, tmp_path / f"answers{suffix}") == 28
    assert judged(other) == said
    write_out(other, tmp_path / f"again{suffix}")
    assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"answers{suffix}").read_bytes()


@both_kinds
def test_only_what_stands_is_written_out(campaign: Campaign, make: Make, tmp_path: Path, suffix: str) -> None:
    campaign.answer(1, 2, SIMILAR)
    campaign.answer(2, 3, SIMILAR)
    campaign.answer(2, 3, UNSURE)
    campaign.answer(1, 7, DISSIMILAR, "ann")
    campaign.undo()
    campaign.undo("ann")
    file = tmp_path / f"answers{suffix.upper()}"
    assert write_out(campaign, file) == 2
    other = make("other")
    assert take_in(other, file) == 2
    assert [row[2] for row in judged(other)] == [SIMILAR, SIMILAR]


def test_the_columns_are_named_and_verdicts_are_words(campaign: Campaign, tmp_path: Path) -> None:
    paths = campaign.archive().paths
    a, b = sorted((paths.index("12.png"), paths.index("plain.png")))
    campaign.answer(a, b, DISSIMILAR, "ann")
    write_out(campaign, tmp_path / "answers.csv")
    assert (tmp_path / "answers.csv").read_text() == (
        "a,b,verdict,annotator\n12.png,plain.png,dissimilar,ann\n"
    )
    write_out(campaign, tmp_path / "answers.jsonl")
    assert json.loads((tmp_path / "answers.jsonl").read_text()) == {
        "a": "12.png",
        "b": "plain.png",
        "verdict": "dissimilar",
        "annotator": "ann",
    }


def test_nothing_said_is_a_file_without_answers(campaign: Campaign, tmp_path: Path) -> None:
    for name, text in (("a.csv", "a,b,verdict,annotator\n"), ("a.jsonl", "")):
        assert write_out(campaign, tmp_path / name) == 0
        assert (tmp_path / name).read_text() == text
        assert take_in(campaign, tmp_path / name) == 0


# -- taking in -------------------------------------------------------------------------------------

GOOD = {
    "ids.csv": "a,b,verdict\n3,1,similar\n",
    "upper.csv": "verdict,b,a,remark\n Similar ,1,3,x\n",
    "windows.csv": "\ufeffa,b,verdict,annotator\r\n1,3,SIMILAR,\r\n\r\n",
    "ids.jsonl": '\n{"a": 3, "b": "1", "verdict": "similar", "annotator": null}\n\n',
    "more.jsonl": '\ufeff{"a": 1, "b": 3, "verdict": "similar", "sure": 0.9}',
}


@pytest.mark.parametrize("name", GOOD)
def test_images_may_be_given_by_id_and_need_no_annotator(
    campaign: Campaign, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(GOOD[name].encode())
    assert take_in(campaign, tmp_path / name) == 1
    (row,) = campaign.store.standing()
    assert (row.a, row.b, row.verdict, row.annotator, row.strategy) == (1, 3, SIMILAR, "import", "import")


def test_what_is_taken_in_belongs_to_the_round_to_come_and_is_learnt_from(
    campaign: Campaign, tmp_path: Path
) -> None:
    campaign.store.finish_round(4, {}, Questions.of(Pairs.none(), 5, "mgue"))
    (tmp_path / "in.csv").write_text("a,b,verdict\n0,1,similar\n1,2,similar\n")
    take_in(campaign, tmp_path / "in.csv")
    assert {row.round for row in campaign.store.standing()} == {5}
    assert progress.standing(campaign).implied == 1


@both_kinds
def test_taking_its_own_file_in_again_changes_nothing_that_stands(
    campaign: Campaign, tmp_path: Path, suffix: str
) -> None:
    campaign.store.queue(Questions(Pairs.of([1, 3], [2, 5]), 0, (AUDIT, "mgue")))
    campaign.answer(1, 2, SIMILAR)
    campaign.answer(3, 5, SIMILAR)
    file = tmp_path / f"own{suffix}"
    write_out(campaign, file)
    take_in(campaign, file)
    assert progress.standing(campaign).answers == 2
    assert progress.standing(campaign).held_back == 1


# -- what is wrong ---------------------------------------------------------------------------------

HEAD = "a,b,verdict,annotator\n0,1,similar,me\n"
FIRST = '{"a": 0, "b": 1, "verdict": "similar"}\n'
BAD = [
    ("x.csv", HEAD + "0,nowhere.png,similar,me\n", "line 3: 'nowhere.png' is no image"),
    ("x.csv", HEAD + "0,8,similar,me\n", "line 3: '8' is no image"),
    ("x.csv", HEAD + "0,-1,similar,me\n", "line 3: '-1' is no image"),
    ("x.csv", HEAD + ",1,similar,me\n", "line 3: '' is no image"),
    ("x.csv", HEAD + "0,²,similar,me\n", "line 3: '²' is no image"),
    ("x.csv", HEAD + f"0,{'9' * 5000},similar,me\n", "line 3: '999"),
    ("x.csv", HEAD + "0\n", "line 3: '' is no image"),
    (
        "x.csv",
        HEAD + "0,2,similiar,me\n",
        "line 3: 'similiar' is no verdict; use similar, dissimilar, unsure",
    ),
    ("x.csv", HEAD + "0,2,1,me\n", "line 3: '1' is no verdict"),
    ("x.csv", HEAD + "0,2,,me\n", "line 3: '' is no verdict"),
    ("x.csv", HEAD + "0,2\n", "line 3: '' is no verdict"),
    ("x.csv", HEAD + "\n2,2,similar,me\n", "line 4 pairs an image with itself"),
    ("x.csv", HEAD + '"line\nbreak.png","plain.png",alike,me\n', "line 4: 'alike' is no verdict"),
    ("x.jsonl", FIRST + '{"a": 0, "b": 99, "verdict": "similar"}\n', "line 2: '99' is no image"),
    ("x.jsonl", FIRST + '{"b": 1, "verdict": "similar"}\n', "line 2: '' is no image"),
    ("x.jsonl", FIRST + '{"a": true, "b": 1, "verdict": "similar"}\n', "line 2: 'True' is no image"),
    ("x.jsonl", FIRST + '\n{"a": 0, "b": 2, "verdict": null}\n', "line 3: '' is no verdict"),
    ("x.jsonl", FIRST + '{"a": 0, "b": 2}\n', "line 2: '' is no verdict"),
    ("x.jsonl", FIRST + '{"a": 2, "b": 2, "verdict": "unsure"}\n', "line 2 pairs an image with itself"),
    ("x.jsonl", FIRST + '{"a": 0, "b": 2, "verd\n', "line 2 is not a JSON object"),
    ("x.jsonl", FIRST + "[0, 1, 2]\n", "line 2 is not a JSON object"),
]


@pytest.mark.parametrize(("name", "text", "says"), BAD)
def test_a_wrong_line_is_named_and_nothing_is_taken_in(
    campaign: Campaign, tmp_path: Path, name: str, text: str, says: str
) -> None:
    # Of these fail: ² and the endless number (int() raises ValueError), and an empty verdict, which is
    # shown as 'none', because str(None) is.
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        take_in(campaign, tmp_path / name)
    assert str(refused.value).startswith(f"{tmp_path / name}, {says}")
    assert str(refused.value).endswith("Nothing was taken in.")
    assert campaign.store.events() == 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.csv", b"", "has no column a, b, verdict: its header is a,b,verdict,annotator"),
        ("x.csv", b"a;b;verdict\n0;1;similar\n", "has no column a, b, verdict"),
        ("x.csv", b"a,b\n0,1\n", "has no column verdict"),
        ("x.csv", b"a,b,verdict\n0,1,\xe4hnlich\n", "is not text in UTF-8"),
        ("x.jsonl", b"\xff\xfe", "is not text in UTF-8"),
        ("x.txt", b"a,b,verdict\n0,1,similar\n", ": name it .csv or .jsonl"),
        ("x", b"", ": name it .csv or .jsonl"),
    ],
)
def test_a_file_that_cannot_be_meant_is_named(
    campaign: Campaign, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as refused:
        take_in(campaign, tmp_path / name)
    assert str(refused.value).startswith(str(tmp_path / name))
    assert says in str(refused.value)
    assert campaign.store.events() == 0


def test_a_missing_file_and_a_folder_in_its_place_are_named(campaign: Campaign, tmp_path: Path) -> None:
    # The second fails: read_bytes raises IsADirectoryError.
    (tmp_path / "folder.csv").mkdir()
    for name in ("nowhere.csv", "folder.csv"):
        with pytest.raises(AnnealError, match=name):
            take_in(campaign, tmp_path / name)


def test_a_file_of_another_kind_or_in_no_folder_is_not_written(campaign: Campaign, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"answers\.xlsx: name it \.csv or \.jsonl"):
        write_out(campaign, tmp_path / "answers.xlsx")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AnnealError, match="file"):
        write_out(campaign, tmp_path / "file" / "answers.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["campaign", "file"]
