"""Answers from and to a file: what is written can be read again, and a mistake is named with its line."""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.store import Event, HeldOut, Purpose, Row
from anneal.campaign.transfer import read_answers, write_answers
from anneal.errors import AnnealError, DiskError, UsageError
from anneal.pairs import Pair, Verdict
from anneal.settings import Settings
from full_disk import no_file_over

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

Said = list[tuple[str, str, int, str]]
both_kinds = pytest.mark.parametrize("suffix", [".csv", ".jsonl"])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("odd")
    for number, name in enumerate(NAMES):
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    return open_archive(folder / "in", 8, folder / "cache")


Make = Callable[..., Campaign]


@pytest.fixture
def make(tmp_path: Path, archive: Archive) -> Iterator[Make]:
    """A new campaign in a folder of this name."""
    with ExitStack() as stack:

        def make(name: str, *heldout: Pair) -> Campaign:
            images = np.arange(len(archive))
            draws = [(FROZEN, number, *pair) for number, pair in enumerate(heldout)]
            made = Campaign.create(tmp_path / name, archive, Settings(px=8), images, HeldOut(draws, []))
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def campaign(make: Make) -> Campaign:
    return make("campaign")


def said(campaign: Campaign) -> Said:
    """What stands, by the names of the images."""
    paths = campaign.archive().paths
    rows = campaign.log().standing()
    return [(paths[row.a], paths[row.b], row.verdict, row.annotator) for row in rows]


def answer_everything(campaign: Campaign) -> None:
    """Every image beside every other, by people with odd names."""
    people = ("me", "Ann, née O'Brien", '"Bob"', "李\r雷\n")
    pairs = combinations(range(len(campaign.archive())), 2)
    campaign.store.add(
        Event(*pair, 1 + number % 3, people[number % 4], "place", 0) for number, pair in enumerate(pairs)
    )


# -- there and back --------------------------------------------------------------------------------


@both_kinds
def test_what_is_written_is_read_as_it_was(make: Make, tmp_path: Path, suffix: str) -> None:
    one = make("one")
    other = make("other")
    answer_everything(one)
    assert write_answers(one, tmp_path / f"answers{suffix}") == 28
    assert read_answers(other, tmp_path / f"answers{suffix}") == 28
    assert said(other) == said(one)
    write_answers(other, tmp_path / f"again{suffix}")
    assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"answers{suffix}").read_bytes()


@both_kinds
def test_any_name_of_a_person_comes_back(make: Make, tmp_path: Path, suffix: str) -> None:
    @given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=5, unique=True))
    @settings(max_examples=40, deadline=None)
    def check(people: list[str]) -> None:
        for campaign in (one, other):
            campaign.store.db.execute("DELETE FROM answers")
        fresh = [Campaign(campaign.folder, campaign.store) for campaign in (one, other)]
        fresh[0].store.add(Event(0, 1, SIMILAR, who, "place", 0) for who in people)
        assert write_answers(fresh[0], file) == len(people)
        assert read_answers(fresh[1], file) == len(people)
        assert said(fresh[1]) == said(fresh[0])

    one = make("one")
    other = make("other")
    file = tmp_path / f"people{suffix}"
    check()


def test_the_columns_are_named_and_verdicts_are_words(campaign: Campaign, tmp_path: Path) -> None:
    archive = campaign.archive()
    a, b = archive.paths.index("12.png"), archive.paths.index("plain.png")
    campaign.answer(a, b, DISSIMILAR, "ann", asked=5.5, looked=900, key="key-number-1")
    write_answers(campaign, tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(newline="", encoding="utf-8") as file:
        (line,) = csv.DictReader(file)
    (row,) = campaign.log().rows
    assert line == {
        "id": "1", "a": "12.png", "b": "plain.png", "verdict": "dissimilar", "annotator": "ann",
        "stands": "yes", "purpose": "chosen", "round": "0", "strategy": "place",
        "answered": str(row.answered), "asked": "5.5",
        "looked": "900", "entered": "", "undoes": "", "key": "key-number-1", "why": "", "sheet": "",
        "guess": "",
        "digest_a": archive.digests[a], "digest_b": archive.digests[b],
    }  # fmt: skip
    write_answers(campaign, tmp_path / "answers.jsonl")
    told = json.loads((tmp_path / "answers.jsonl").read_text())
    assert {name: "" if value is None else str(value) for name, value in told.items()} == line


def test_a_campaign_without_answers_writes_a_file_without_answers(campaign: Campaign, tmp_path: Path) -> None:
    for name, lines in (("a.csv", 1), ("a.jsonl", 0)):
        assert write_answers(campaign, tmp_path / name) == 0
        assert len((tmp_path / name).read_text().splitlines()) == lines
        assert read_answers(campaign, tmp_path / name) == 0


# -- nothing is lost -----------------------------------------------------------------------------------


def act(campaign: Campaign, rng: np.random.Generator) -> None:
    """Something that people or the machine do, drawn at random."""
    a, b = sorted(rng.choice(len(NAMES), 2, replace=False).tolist())
    who = str(rng.choice(["me", "ann", "bob"]))
    rows = campaign.log().standing()
    kind = rng.integers(6)
    if kind < 3 or not rows:
        campaign.answer(a, b, int(rng.integers(1, 4)), who, looked=int(rng.integers(100, 9000)))
    elif kind == 3:
        campaign.undo(who)
    elif kind == 4:
        campaign.correct(int(rng.choice([row.id for row in rows])), int(rng.integers(0, 4)), who)
    else:
        campaign.again([int(rng.choice([row.id for row in rows]))], str(rng.choice(["me", "machine"])))


def state(campaign: Campaign) -> dict[str, object]:
    """All that follows from the events, by the names of the images."""
    digests = campaign.archive().digests
    log = campaign.log()

    def named(rows: list[Row]) -> list[tuple[object, ...]]:
        shown = []
        for row in rows:
            about = {**vars(row), "pair": sorted((digests[row.a], digests[row.b]))}
            shown.append(tuple(about[name] for name in about if name not in ("a", "b", "id", "undoes")))
        return shown

    tally = campaign.tally()
    pairs = np.array([digests.index(digest) for digest in sorted(digests)])
    return {
        "rows": named(log.rows),
        "undone": [
            named([row])
            for number in (row.undoes for row in log.rows)
            if number
            for row in [log.row(number)]
            if row
        ],
        "standing": named(log.standing()),
        "withdrawn": named(log.withdrawn()),
        "waiting": sorted(map(str, named(list(log.waiting.values())))),
        "given": (log.given, log.looked, log.overturned(9)),
        "verdicts": tally.verdicts,
        "heldout": named(list(tally.heldout.values())),
        "people": {
            name: (person.verdicts, list(person.looked.values())) for name, person in tally.people.items()
        },
        "known": campaign.known().among(pairs, pairs).tolist(),
        "contradictions": sorted(sorted(map(str, named(rows))) for rows in campaign.contradictions()),
    }


@both_kinds
@pytest.mark.parametrize("seed", range(3))
def test_another_campaign_comes_to_the_same_state(make: Make, tmp_path: Path, suffix: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = make("one", (0, 1), (2, 5))
    other = make("other", (0, 1), (2, 5))
    for number in range(40):
        if number == 20:
            one.rounds.save(Record(0, one.log().newest, 0))  # later answers are of round 1
        act(one, rng)
    file = tmp_path / f"answers{suffix}"
    write_answers(one, file)
    assert read_answers(other, file) == len(one.log().rows)
    assert state(other) == state(one)
    assert other.open_heldout(other.known()) == one.open_heldout(one.known())
    assert read_answers(other, file) == 0, "a second time nothing is new"
    assert read_answers(one, file) == 0
    assert state(one) == state(other)


@both_kinds
def test_an_archive_in_another_order_is_understood(
    make: Make, archive: Archive, tmp_path: Path, suffix: str
) -> None:
    one = make("one")
    rng = np.random.default_rng(1)
    for _ in range(30):
        act(one, rng)
    for number, path in enumerate(archive.paths):
        moved = tmp_path / "moved" / f"{9 - number}.png"
        moved.parent.mkdir(exist_ok=True)
        shutil.copy(archive.root / path, moved)
    second = open_archive(tmp_path / "moved", 8, tmp_path / "cache")
    assert second.digests == archive.digests[::-1]
    write_answers(one, tmp_path / f"answers{suffix}")
    with closing(Campaign.create(tmp_path / "two", second, Settings(px=8), np.arange(8))) as two:
        read_answers(two, tmp_path / f"answers{suffix}")
        assert state(two) == state(one)


def test_a_changed_image_an_unknown_purpose_and_a_lost_line_are_named(
    campaign: Campaign, make: Make, tmp_path: Path
) -> None:
    campaign.answer(0, 1, SIMILAR)
    campaign.undo()
    file = tmp_path / "answers.csv"
    write_answers(campaign, file)
    text = file.read_text()
    head, first, undo = text.splitlines()
    digest = campaign.archive().digests[0]
    wrong = {
        text.replace(digest, "0" * len(digest)): "line 2: .* is another image here than the one judged",
        text.replace("chosen", "guessed"): "line 2: 'guessed' is not a purpose",
        f"{head}\n{undo}\n": "line 2 undoes 1, which is no line before it",
        text.replace(
            first, first.replace("place,", "place,soon")
        ): "line 2: answered is 'soon.*', which is not a",
    }
    other = make("other")
    for changed, why in wrong.items():
        file.write_text(changed)
        with pytest.raises(UsageError, match=f"{why}.* Nothing was imported"):
            read_answers(other, file)
    assert other.log().rows == []


COMMON = {
    "c.csv": "path_a,path_b,similar\n12.png,plain.png,{}\n",
    "d.csv": "similar,path_b,path_a,who\n{},12.png,plain.png,x\n",
    "e.jsonl": '{{"path_a": "12.png", "path_b": "plain.png", "similar": "{}"}}\n',
}


@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("1", SIMILAR),
        ("0", DISSIMILAR),
        ("True", SIMILAR),
        ("false", DISSIMILAR),
        ("YES", SIMILAR),
        ("no", DISSIMILAR),
    ],
)
def test_the_common_shape_is_read(
    campaign: Campaign, tmp_path: Path, name: str, word: str, verdict: Verdict
) -> None:
    (tmp_path / name).write_text(COMMON[name].format(word))
    assert read_answers(campaign, tmp_path / name) == 1
    ((one, other, said_, _),) = said(campaign)
    assert ({one, other}, said_) == ({"12.png", "plain.png"}, verdict)


def test_a_list_of_pairs_and_a_third_answer_are_refused(campaign: Campaign, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    for text, why in (
        ("path_a,path_b,similar\n0,1,maybe\n", "'maybe' does not say whether they are similar; use 1 or 0"),
        ("path_a,path_b,verdict,source\n0,1,similar,implied\n", "import what export answers wrote"),
        ("path_a,path_b\n0,1\n", "its header is"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=why):
            read_answers(campaign, file)
    assert campaign.log().rows == []


# -- reading ---------------------------------------------------------------------------------------

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
    assert read_answers(campaign, tmp_path / name) == 1
    (row,) = campaign.log().standing()
    assert (row.pair, row.verdict, row.annotator) == ((1, 3), SIMILAR, "import")
    assert (row.purpose, row.strategy) == (Purpose.IMPORTED, "")


def test_imported_answers_belong_to_the_current_round_and_are_learnt_from(make: Make, tmp_path: Path) -> None:
    campaign = make("campaign", (0, 1))  # even a pair that was drawn to be held out
    campaign.rounds.save(Record(0, 0, 0))
    (tmp_path / "in.csv").write_text("a,b,verdict\n0,1,similar\n1,2,similar\n")
    assert read_answers(campaign, tmp_path / "in.csv") == 2
    assert {row.round for row in campaign.log().standing()} == {1}
    assert progress.standing(campaign).implied == 1


@both_kinds
def test_reading_its_own_file_changes_nothing(make: Make, tmp_path: Path, suffix: str) -> None:
    campaign = make("campaign", (1, 2))
    campaign.answer(1, 2, SIMILAR)
    campaign.answer(3, 5, SIMILAR)
    file = tmp_path / f"own{suffix}"
    write_answers(campaign, file)
    assert read_answers(campaign, file) == 0
    assert len(campaign.log().rows) == 2
    assert progress.standing(campaign).heldout == 1


@pytest.mark.parametrize("first", ["similar", "dissimilar", "unsure"])
def test_of_several_lines_on_one_pair_the_last_counts(campaign: Campaign, tmp_path: Path, first: str) -> None:
    campaign.answer(0, 1, SIMILAR, "ann")
    lines = [f"0,1,{first},ann", "1,0,dissimilar,ann", "0,1,unsure,bob", "0,1,similar,ann"]
    (tmp_path / "in.csv").write_text("\n".join(["a,b,verdict,annotator", *lines]))
    assert read_answers(campaign, tmp_path / "in.csv") == 1  # ann's answer stands already
    assert [(row.annotator, row.verdict) for row in campaign.log().standing()] == [
        ("ann", SIMILAR),
        ("bob", UNSURE),
    ]


def test_an_import_can_be_undone_line_by_line(campaign: Campaign, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b,verdict,annotator\n0,1,similar,ann\n1,2,similar,ann\n")
    read_answers(campaign, tmp_path / "in.csv")
    assert [campaign.undo("ann") for _ in range(3)] == [(1, 2), (0, 1), None]


# -- mistakes --------------------------------------------------------------------------------------

HEAD = "a,b,verdict,annotator\n0,1,similar,me\n"
FIRST = '{"a": 0, "b": 1, "verdict": "similar"}\n'
BAD = [
    ("x.csv", HEAD + "0,nowhere.png,similar,me\n", "line 3: 'nowhere.png' is not an image"),
    ("x.csv", HEAD + "0,8,similar,me\n", "line 3: '8' is not an image"),
    ("x.csv", HEAD + "0,-1,similar,me\n", "line 3: '-1' is not an image"),
    ("x.csv", HEAD + ",1,similar,me\n", "line 3: '' is not an image"),
    ("x.csv", HEAD + "0,²,similar,me\n", "line 3: '²' is not an image"),
    ("x.csv", HEAD + f"0,{'9' * 5000},similar,me\n", "line 3: '999"),
    ("x.csv", HEAD + "0\n", "line 3: '' is not an image"),
    (
        "x.csv",
        HEAD + "0,2,similiar,me\n",
        "line 3: 'similiar' is not a verdict; use similar, dissimilar, unsure",
    ),
    ("x.csv", HEAD + "0,2,1,me\n", "line 3: '1' is not a verdict"),
    ("x.csv", HEAD + "0,2,,me\n", "line 3: '' is not a verdict"),
    ("x.csv", HEAD + "0,2\n", "line 3: '' is not a verdict"),
    ("x.csv", HEAD + "\n2,2,similar,me\n", "line 4 pairs an image with itself"),
    ("x.csv", HEAD + '"line\nbreak.png","plain.png",alike,me\n', "line 4: 'alike' is not a verdict"),
    ("x.jsonl", FIRST + '{"a": 0, "b": 99, "verdict": "similar"}\n', "line 2: '99' is not an image"),
    ("x.jsonl", FIRST + '{"b": 1, "verdict": "similar"}\n', "line 2: '' is not an image"),
    ("x.jsonl", FIRST + '{"a": true, "b": 1, "verdict": "similar"}\n', "line 2: 'True' is not an image"),
    ("x.jsonl", FIRST + '\n{"a": 0, "b": 2, "verdict": null}\n', "line 3: '' is not a verdict"),
    ("x.jsonl", FIRST + '{"a": 0, "b": 2}\n', "line 2: '' is not a verdict"),
    ("x.jsonl", FIRST + '{"a": 2, "b": 2, "verdict": "unsure"}\n', "line 2 pairs an image with itself"),
    ("x.jsonl", FIRST + '{"a": 0, "b": 2, "verd\n', "line 2 is not a JSON object"),
    ("x.jsonl", FIRST + "[0, 1, 2]\n", "line 2 is not a JSON object"),
    ("x.jsonl", FIRST + f'{{"a": {"9" * 5000}}}\n', "line 2 is not a JSON object"),
    ("x.csv", HEAD + '0,2,"' + "similar,me\n" * 20_000, "line "),  # a quote that is never closed
]


@pytest.mark.parametrize(("name", "text", "says"), BAD)
def test_a_wrong_line_is_named_and_nothing_is_imported(
    campaign: Campaign, tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_answers(campaign, tmp_path / name)
    assert str(refused.value).startswith(f"{tmp_path / name}, {says}")
    assert str(refused.value).endswith("Nothing was imported.")
    assert campaign.log().rows == []


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
def test_a_file_of_another_kind_is_named(
    campaign: Campaign, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_answers(campaign, tmp_path / name)
    assert str(refused.value).startswith(str(tmp_path / name))
    assert says in str(refused.value)
    assert campaign.log().rows == []


def test_a_missing_file_and_a_folder_in_its_place_are_named(campaign: Campaign, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("nowhere.csv", "folder.csv"):
        with pytest.raises(UsageError, match=name):
            read_answers(campaign, tmp_path / name)


def test_a_file_of_another_kind_or_without_a_folder_is_not_written(
    campaign: Campaign, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"answers\.xlsx: name it \.csv or \.jsonl"):
        write_answers(campaign, tmp_path / "answers.xlsx")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AnnealError, match="file"):
        write_answers(campaign, tmp_path / "file" / "answers.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["campaign", "file"]


@both_kinds
def test_a_full_disk_keeps_the_old_file(campaign: Campaign, tmp_path: Path, suffix: str) -> None:
    answer_everything(campaign)
    file = tmp_path / f"answers{suffix}"
    file.write_text("old")
    with no_file_over(100), pytest.raises(DiskError, match="The disk is full"):
        write_answers(campaign, file)
    assert file.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "campaign"]


def test_an_import_on_a_full_disk_keeps_nothing_of_it(campaign: Campaign, tmp_path: Path) -> None:
    campaign.answer(0, 1, SIMILAR)
    lines = [f"{a},{b},similar,{who}\n" for a, b in combinations(range(8), 2) for who in range(100)]
    (tmp_path / "in.csv").write_text("a,b,verdict,annotator\n" + "".join(lines))
    written = campaign.store.path.with_name("campaign.sqlite-wal").stat().st_size
    with no_file_over(written), pytest.raises(DiskError, match="Everything before it is safe"):
        read_answers(campaign, tmp_path / "in.csv")
    assert len(campaign.log().rows) == 1
    assert read_answers(campaign, tmp_path / "in.csv") == len(lines)
