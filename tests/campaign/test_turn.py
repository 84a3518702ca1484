"""The machine's turn: what it needs, what it saves, where it starts, and what is left if it is killed."""

import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import SETTINGS, SHRUNK, answer_truly, pattern_archive, say, truth, verdict_of

from anneal.archive.catalog import Archive
from anneal.campaign import heldout, turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import next_question, take
from anneal.campaign.recheck import earlier_suspects
from anneal.campaign.rounds import FROZEN, LAST, Record, Round
from anneal.campaign.store import Purpose
from anneal.campaign.turn import Learned, Training
from anneal.errors import UsageError
from anneal.method.relations import Relations
from anneal.method.snapshot import Agenda, Snapshot
from anneal.method.strategies import Strategy, listed
from anneal.network import model
from anneal.network.model import Encoder
from anneal.network.train import Fit, fit
from anneal.pairs import UNKNOWN, Floats, Pairs, Verdict
from anneal.watch import Progress

SIMILAR, DISSIMILAR, UNSURE = Verdict
PLACE = replace(SETTINGS, strategy="place", per_round=16, recheck=0.15)
STEPS = 5  # of training: enough to change every vector


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: STEPS)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


@pytest.fixture(scope="module")
def made(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign whose first round is answered. Copy it."""
    folder = tmp_path_factory.mktemp("turn") / "campaign"
    with closing(turn.begin(folder, archive, PLACE, backbone=SHRUNK)) as campaign:
        answer_truly(campaign, 16)
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Iterator[Campaign]:
    with closing(Campaign.open(Path(shutil.copytree(made, tmp_path / "copy")))) as opened:
        yield opened


# -- a new campaign --------------------------------------------------------------------------------


def test_a_new_campaign_has_the_frozen_space_an_agenda_and_held_out_pairs(
    archive: Archive, tmp_path: Path
) -> None:
    images = np.arange(0, 120, 2)
    with closing(turn.begin(tmp_path / "c", archive, PLACE, images=images, backbone=SHRUNK)) as campaign:
        rounds = campaign.rounds
        assert (rounds.current, rounds.serving, rounds.records()) == (0, FROZEN, [])
        vectors = rounds.vectors()
        assert vectors.shape == (120, 48)  # every image, also those that are not asked about
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        assert sorted(rounds.agenda().images.tolist()) == images.tolist()
        assert len(rounds.heldout_pairs()) == round(16 * 0.2)
        asked = answer_truly(campaign, 16)
        assert all(image % 2 == 0 for question in asked for image in question.pair)


def test_a_campaign_needs_two_images(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least two images"):
        turn.begin(tmp_path / "c", archive, PLACE, images=np.array([3]), backbone=SHRUNK)


def test_a_campaign_is_not_made_over_another_one(campaign: Campaign, archive: Archive) -> None:
    before = {file: file.stat().st_mtime_ns for file in campaign.folder.rglob("*.np*")}
    with pytest.raises(UsageError, match="already holds a campaign"):
        turn.begin(campaign.folder, archive, replace(PLACE, seed=1), backbone=SHRUNK)
    assert {file: file.stat().st_mtime_ns for file in campaign.folder.rglob("*.np*")} == before


# -- what a turn needs -----------------------------------------------------------------------------


def test_a_turn_is_refused_while_there_is_nothing_to_learn(archive: Archive, tmp_path: Path) -> None:
    with closing(turn.begin(tmp_path / "c", archive, PLACE, backbone=SHRUNK)) as campaign:
        for verdict, purpose in ((None, ""), (UNSURE, Purpose.CHOSEN), (SIMILAR, Purpose.HELD_OUT)):
            if verdict is not None:
                say(campaign, [(0, 1)], [verdict], purpose)
            with pytest.raises(UsageError, match="nothing to learn from"):
                turn.turn(campaign, SHRUNK)
        assert campaign.rounds.current == 0
        assert not campaign.rounds.files(0).folder.exists()
        say(campaign, [(2, 3)], [DISSIMILAR])
        turn.turn(campaign, SHRUNK)
        assert campaign.rounds.current == 1


def test_class_labels_alone_can_be_learnt_from(archive: Archive, tmp_path: Path) -> None:
    with closing(turn.begin(tmp_path / "c", archive, PLACE, backbone=SHRUNK)) as campaign:
        kinds = truth(campaign)
        campaign.label([(image, kinds[image]) for image in range(0, 120, 3)])
        turn.turn(campaign, SHRUNK)
        (record,) = campaign.rounds.records()
        assert record.answers == 40
        assert record.bits == pytest.approx(40 * math.log2(12), abs=0.1)


# -- what a turn leaves ----------------------------------------------------------------------------


def test_a_turn_saves_the_round(campaign: Campaign) -> None:
    rounds = campaign.rounds
    before = rounds.heldout_pairs()
    learned = turn.turn(campaign, SHRUNK)
    assert (rounds.current, rounds.serving) == (1, 0)
    files = rounds.files(0)
    np.testing.assert_array_equal(files.vectors(), learned.vectors.astype(np.float32))
    assert files.has_model
    nearest = files.nearest()
    assert nearest is not None
    assert nearest.shape == (120, 6)
    agenda = rounds.agenda()
    known = campaign.known()
    assert (known.sizes[known.group[agenda.images]] == 1).all()
    assert (known.of(agenda.pairs) == UNKNOWN).all()
    expected = earlier_suspects(campaign, rounds.files(FROZEN).vectors(), 1.0)
    assert list(files.suspects()) == list(expected)
    assert len(rounds.heldout_pairs()) > len(before)  # more were drawn


def test_the_record_has_the_figures_of_the_round(campaign: Campaign) -> None:
    campaign.answer(0, 1, SIMILAR, looked=30_000)
    newest = campaign.log().newest
    learned = turn.turn(campaign, SHRUNK)
    (record,) = campaign.rounds.records()
    assert (record.number, record.seen, record.serving, record.recheck_rate) == (0, newest, 0, 1.0)
    assert (record.answers, record.bits, record.minutes) == (17, 17.0, 0.5)
    assert record.loss == learned.fitted.loss
    assert -1 <= record.threshold <= 1
    answers = learned.snapshot.answers
    similar = answers.given(SIMILAR)
    s = (learned.vectors[similar.a] * learned.vectors[similar.b]).sum(axis=1)
    assert (s >= record.cutoff).any()  # some similar pairs are called similar
    assert set(record.seconds) == {"infer", "fit", "embed", "heldout", "index", "plan"}
    assert Record.from_json(json.loads(json.dumps(asdict(record)))) == record


def test_an_answer_during_the_turn_is_news_for_the_next_one(campaign: Campaign) -> None:
    steps: list[str] = []

    def watch(step: str) -> Progress:
        def update(done: int, total: int) -> None:
            if step == "choosing" and done == 0:
                with closing(Campaign.open(campaign.folder)) as other:  # another process
                    other.answer(50, 51, DISSIMILAR)

        steps.append(step)
        return update

    learned = turn.turn(campaign, SHRUNK, watch)
    assert steps == ["encoding", "learning", "embedding", "choosing"]
    assert (50, 51) not in set(learned.snapshot.answers.pairs)
    assert campaign.log().news(campaign.rounds.seen) == 1


def test_then_is_part_of_the_transaction(campaign: Campaign) -> None:
    def fail(learned: Learned) -> None:
        assert campaign.rounds.current == 1  # it sees the saved round
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        turn.turn(campaign, SHRUNK, then=fail)
    assert (campaign.rounds.current, campaign.rounds.serving) == (0, FROZEN)
    assert next_question(campaign) is None  # the round still waits for its turn
    turn.turn(campaign, SHRUNK)
    assert campaign.rounds.current == 1


def test_without_held_out_questions_every_model_serves(archive: Archive, tmp_path: Path) -> None:
    settings = replace(PLACE, heldout=0.0)
    with closing(turn.begin(tmp_path / "c", archive, settings, backbone=SHRUNK)) as campaign:
        for number in range(2):
            asked = answer_truly(campaign, 16)
            assert {question.purpose for question in asked} <= {Purpose.CHOSEN, Purpose.AGAIN}
            turn.turn(campaign, SHRUNK)
            assert campaign.rounds.serving == number
        assert campaign.store.heldout() == []


def test_old_rounds_are_removed_and_stay_listed(campaign: Campaign) -> None:
    for number in range(6):
        if number:
            answer_truly(campaign, 16)
        turn.turn(campaign, SHRUNK, pinned=(2,) if number < 5 else ())
        kept = {n for n in range(number + 1) if campaign.rounds.files(n).has_model}
        drew = {m for m, *_ in campaign.rounds.heldout_draws() if m != FROZEN}
        last = set(range(max(0, number - LAST + 1), number + 1))
        pinned = {2} if 2 <= number < 5 else set()
        assert kept == {*drew, *last, *pinned, campaign.rounds.serving} - {FROZEN}
        assert [one.round for one in heldout.models(campaign)] == list(range(FROZEN, number + 1))
    assert campaign.rounds.records()[2].p5 is not None


# -- the same answers, the same round --------------------------------------------------------------


Left = tuple[Floats, Agenda, Record, list[Any]]


def turned(folder: Path) -> Left:
    """Take a turn; returns what it left."""
    with closing(Campaign.open(folder)) as campaign:
        turn.turn(campaign, SHRUNK)
        record = replace(campaign.rounds.records()[-1], seconds={})
        return np.array(campaign.rounds.vectors()), campaign.rounds.agenda(), record, campaign.store.heldout()


def assert_same(one: Left, other: Left) -> None:
    np.testing.assert_array_equal(one[0], other[0])
    assert list(one[1].pairs) == list(other[1].pairs)
    assert one[1].images.tolist() == other[1].images.tolist()
    assert one[1].beside.tolist() == other[1].beside.tolist()
    assert one[2:] == other[2:]


def test_the_same_answers_give_the_same_round(made: Path, tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(made, tmp_path / name)) for name in ("one", "other")]
    for _ in range(2):
        one, other = (turned(folder) for folder in folders)
        assert_same(one, other)
        asked = []
        for folder in folders:
            with closing(Campaign.open(folder)) as campaign:
                asked.append(answer_truly(campaign, 16))
        assert asked[0] == asked[1]


def test_stored_neighbours_change_nothing(made: Path, tmp_path: Path) -> None:
    stored, anew = (Path(shutil.copytree(made, tmp_path / name)) for name in ("stored", "anew"))
    for _ in range(2):
        Round.of(anew, FROZEN).neighbours.unlink(missing_ok=True)
        assert_same(turned(stored), turned(anew))
        for folder in (stored, anew):
            with closing(Campaign.open(folder)) as campaign:
                answer_truly(campaign, 16)
    assert Round.of(stored, FROZEN).neighbours.exists()


def test_another_seed_or_another_answer_gives_another_round(made: Path, tmp_path: Path) -> None:
    plain, seeded, corrected = (Path(shutil.copytree(made, tmp_path / name)) for name in "abc")
    with closing(Campaign.open(seeded)) as campaign:
        campaign.store.set(settings={**campaign.store.setting("settings", {}), "seed": 7})
    with closing(Campaign.open(corrected)) as campaign:
        row = next(row for row in campaign.log().standing() if row.purpose == Purpose.CHOSEN)
        campaign.correct(row.id, SIMILAR if row.verdict == DISSIMILAR else DISSIMILAR)
    expected = turned(plain)[0]
    assert not np.array_equal(turned(seeded)[0], expected)
    assert not np.array_equal(turned(corrected)[0], expected)


# -- where training starts -------------------------------------------------------------------------


def starts(monkeypatch: pytest.MonkeyPatch) -> list[Encoder | None]:
    """The encoders that training starts from, one a turn from now on."""
    used: list[Encoder | None] = []

    def watched(*args: Any, **options: Any) -> Any:
        used.append(options["start"])
        return fit(*args, **options)

    monkeypatch.setattr(turn, "fit", watched)
    return used


def is_of_round(encoder: Encoder | None, campaign: Campaign, number: int) -> bool:
    assert encoder is not None
    saved = model.load(campaign.rounds.files(number).folder, SHRUNK).state_dict()
    return all(bool((encoder.state_dict()[name] == value).all()) for name, value in saved.items())


def test_training_starts_from_the_serving_model(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    used = starts(monkeypatch)
    turn.turn(campaign, SHRUNK)
    assert used == [None]  # there was no model
    turn.turn(campaign, SHRUNK)
    assert is_of_round(used[1], campaign, 0)
    with monkeypatch.context() as patch:
        patch.setattr(heldout, "choose_serving", lambda *_: 1)
        turn.turn(campaign, SHRUNK)  # round 2, which does not serve
    turn.turn(campaign, SHRUNK)
    assert is_of_round(used[3], campaign, 1)
    assert not is_of_round(used[3], campaign, 2)
    shutil.rmtree(campaign.rounds.files(campaign.rounds.serving).folder)
    last_good = model.load(campaign.rounds.files(1).folder, SHRUNK).state_dict()
    turn.turn(campaign, SHRUNK)
    assert used[4] is not None
    assert all(bool((used[4].state_dict()[name] == value).all()) for name, value in last_good.items())
    for number in range(campaign.rounds.current):
        (campaign.rounds.files(number).folder / "model.json").unlink(missing_ok=True)
    turn.turn(campaign, SHRUNK)
    assert used[5] is None


def test_a_cold_restart_starts_from_the_pretrained_network(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(PLACE, restart="cold")
    with closing(turn.begin(tmp_path / "c", archive, settings, backbone=SHRUNK)) as campaign:
        used = starts(monkeypatch)
        say(campaign, [(0, 1)], [SIMILAR])
        for _ in range(2):
            turn.turn(campaign, SHRUNK)
        assert used == [None, None]


@pytest.mark.parametrize(("doubt", "verdict"), [(True, UNKNOWN), (False, DISSIMILAR)])
def test_a_doubtful_separation_is_not_learnt_but_stays_known(
    doubt: bool, verdict: int, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught: list[Relations] = []

    def watched(*args: Any, **options: Any) -> Any:
        taught.append(args[3])
        return fit(*args, **options)

    monkeypatch.setattr(turn, "fit", watched)
    monkeypatch.setattr(turn, "doubtful_separations", lambda *_: [(0, 5)])
    pairs = Pairs.of([0, 0, 0], [1, 5, 6])
    with closing(turn.begin(tmp_path / "c", archive, PLACE, backbone=SHRUNK)) as campaign:
        say(campaign, pairs, [SIMILAR, DISSIMILAR, DISSIMILAR])
        learned = turn.turn(campaign, SHRUNK, training=Training(doubt=doubt))
    assert taught[0].of(pairs).tolist() == [SIMILAR, verdict, DISSIMILAR]
    assert learned.snapshot.known.of(pairs).tolist() == [SIMILAR, DISSIMILAR, DISSIMILAR]


def test_where_a_new_model_does_not_serve_the_next_round_is_planned_in_the_old_space(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Snapshot] = []

    def plan(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Agenda:
        seen.append(snapshot)
        return Agenda()

    own = Strategy("own", plan, listed)
    with closing(turn.begin(tmp_path / "c", archive, PLACE, strategy=own, backbone=SHRUNK)) as campaign:
        say(campaign, [(0, 1)], [SIMILAR])
        learned = turn.turn(campaign, SHRUNK)
        np.testing.assert_array_equal(seen[1].vectors, learned.vectors)
        monkeypatch.setattr(heldout, "choose_serving", lambda *_: FROZEN)
        turn.turn(campaign, SHRUNK)
        np.testing.assert_array_equal(seen[2].vectors, campaign.rounds.vectors(FROZEN))
        assert list(seen[2].answers.pairs) == [(0, 1)]
        assert campaign.rounds.serving == FROZEN


# -- images from outside ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [FROZEN, 0])
def test_an_image_from_outside_gets_the_vector_it_would_have_in_the_archive(
    campaign: Campaign, number: int
) -> None:
    turn.turn(campaign, SHRUNK)
    pixels = campaign.archive().pixels[5:8]
    vectors = turn.encode_images(campaign, pixels, number, SHRUNK)
    np.testing.assert_allclose(vectors, campaign.rounds.vectors(number)[5:8], atol=1e-5)


# -- killed in the middle --------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
from pathlib import Path
from tiny import SHRUNK
from anneal.campaign.campaign import Campaign
from anneal.campaign.turn import turn
from anneal.network.train import Fit

folder, when, steps = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
torch.set_num_threads(1)
Fit.length = lambda settings, known: steps

def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def watch(step):
    return lambda done, total: end() if step == when and 2 * done >= total else None

turn(Campaign.open(folder), SHRUNK, watch, then=end if when == "saving" else None)
"""


@pytest.mark.parametrize("when", ["learning", "choosing", "saving"])
def test_a_turn_that_is_killed_leaves_the_campaign_usable(
    made: Path, campaign: Campaign, tmp_path: Path, when: str
) -> None:
    """In the middle of training; when all files are written; within the transaction that saves the round."""
    words = [str(Path(__file__).parent), str(campaign.folder), when, str(STEPS)]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (campaign.rounds.current, campaign.rounds.serving) == (0, FROZEN)
    assert campaign.log().given == 16
    assert next_question(campaign) is None  # the round still waits for its turn
    (question,) = take(campaign, "me", "h", 1)  # people can go on
    expected = turned(Path(shutil.copytree(made, tmp_path / "never-killed")))
    assert_same(turned(campaign.folder), expected)
    campaign.answer(*question.pair, verdict_of(truth(campaign), question.pair))
    assert campaign.rounds.current == 1
    assert len(take(campaign, "me", "h", 3)) == 3
