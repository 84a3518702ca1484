"""Settings are checked when they are made, and each purpose has random numbers of its own."""

from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anneal.errors import UsageError
from anneal.settings import Settings, Stream, generator, option, refuse_unused

# -- what a setting may be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("--closure", {"closure": "transitive"}),
        ("--depth", {"depth": "deep"}),
        ("--head", {"head": "tail"}),
        ("--diversity", {"diversity": "k-means"}),
        ("--loss", {"loss": "triplet"}),
        ("--threshold", {"threshold": "mean"}),
        ("--restart", {"restart": "hot"}),
        ("--lambda", {"lam": float("nan")}),
        ("--lambda", {"lam": float("inf")}),
        ("--lambda", {"lam": -float("inf")}),
        ("--per-round", {"per_round": 0}),
        ("--per-round", {"per_round": -5}),
        ("--seed", {"seed": -1}),
        ("--views", {"views": 0}),
        ("--views", {"views": 5}),
        ("--share", {"share": -0.1}),
        ("--share", {"share": 1.0}),
        ("--heldout", {"heldout": 0.95}),
        ("--heldout", {"heldout": float("nan")}),
        ("--recheck", {"recheck": -0.1}),
        ("--pseudo-labels", {"pseudo_labels": 0.91}),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_by_its_option(name: str, changes: dict[str, Any]) -> None:
    (value,) = changes.values()
    shown = repr(value) if isinstance(value, str) else str(value)
    with pytest.raises(UsageError) as refused:
        Settings(**changes)
    assert str(refused.value).startswith(f"{name} {shown}")
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("closure", ("full", "single", "none")),
        ("depth", ("head", "last", "full")),
        ("head", ("anchored", "paper")),
        ("diversity", ("kmeans", "none")),
        ("threshold", ("moments", "logistic")),
        ("loss", ("mix", "contrastive", "ntxent")),
        ("restart", ("warm", "cold")),
    ],
)
def test_a_refused_name_comes_with_those_to_choose_from(name: str, choices: tuple[str, ...]) -> None:
    settings = Settings(strategy="mgue")
    for choice in choices:
        changes: dict[str, Any] = {name: choice}
        assert asdict(replace(settings, **changes))[name] == choice
    empty: dict[str, Any] = {name: ""}
    with pytest.raises(UsageError, match=f"choose one of {', '.join(choices)}"):
        replace(settings, **empty)


def test_place_needs_the_full_closure() -> None:
    for closure in ("single", "none"):
        with pytest.raises(UsageError, match="it needs --closure full"):
            Settings(strategy="place", closure=closure)
        assert Settings(strategy="mgue", closure=closure).closure == closure


def test_a_share_may_be_0_or_0_9() -> None:
    for share in (0.0, 0.9):
        settings = Settings(share=share, recheck=share, pseudo_labels=share, heldout=share)
        assert settings.heldout == share


def test_settings_come_back_from_their_dictionary() -> None:
    settings = Settings(strategy="random", px=64, per_round=7, seed=3)
    assert Settings(**asdict(settings)) == settings


# -- options -------------------------------------------------------------------------------------------


def test_an_option_is_the_name_of_its_setting() -> None:
    assert option("per_round") == "--per-round"
    assert option("pseudo_labels") == "--pseudo-labels"
    assert option("lam") == "--lambda"  # a word of Python: the field cannot have this name


def test_every_setting_has_an_option_of_its_own_and_a_help() -> None:
    options = [option(one.name) for one in fields(Settings)]
    assert len(set(options)) == len(options)
    assert all(name.startswith("--") and "_" not in name for name in options)
    assert all(one.metadata["help"].endswith(".") for one in fields(Settings))


@pytest.mark.parametrize(
    ("changes", "strategies", "name"),
    [
        ({"lam": 2.0}, ["place"], "--lambda"),
        ({"lam": 2.0}, ["bcgue", "random"], "--lambda"),
        ({"share": 0.0}, ["random"], "--share"),
        ({"threshold": "logistic"}, ["place"], "--threshold"),
        ({"diversity": "none"}, ["place", "random"], "--diversity"),
        ({"head": "paper", "depth": "full"}, ["mgue"], "--head"),
        ({"views": 1, "depth": "last"}, ["mgue"], "--views"),
    ],
)
def test_a_changed_setting_without_effect_is_refused(
    changes: dict[str, Any], strategies: list[str], name: str
) -> None:
    with pytest.raises(UsageError, match=f"^{name} has no effect with .*: it is for "):
        refuse_unused(Settings(**changes), strategies)


@pytest.mark.parametrize(
    ("changes", "strategies"),
    [
        ({}, ["place"]),
        ({"depth": "full"}, ["place"]),  # head and views have their defaults
        ({"lam": 2.0, "share": 0.0}, ["place", "mgue"]),  # one of them uses it
        ({"diversity": "none"}, ["bcgue"]),
        ({"head": "paper", "views": 4}, ["random"]),
        ({"heldout": 0.0, "per_round": 9, "loss": "ntxent", "seed": 4}, ["place"]),
    ],
)
def test_a_setting_with_an_effect_is_not_refused(changes: dict[str, Any], strategies: list[str]) -> None:
    refuse_unused(Settings(**changes), strategies)


# -- random numbers ------------------------------------------------------------------------------------

purposes = st.tuples(
    st.integers(0, 2**32), st.sampled_from(list(Stream)), st.lists(st.integers(0, 2**32 - 1), max_size=3)
)
Purpose = tuple[int, Stream, list[int]]


def draws(purpose: Purpose) -> list[int]:
    seed, stream, numbers = purpose
    drawn: list[int] = generator(seed, stream, *numbers).integers(2**62, size=3).tolist()
    return drawn


@given(purposes, purposes)
@example((0, Stream.FIT, [7]), (0, Stream.FIT, [7, 0]))
@example((0, Stream.LABEL_PAIRS, []), (0, Stream.LABEL_PAIRS, [0]))
@example((0, Stream.LABEL_PAIRS, [1]), (0, Stream.FIT, []))
@example((1, Stream.LABEL_PAIRS, []), (0, Stream.FIT, []))
def test_two_purposes_never_share_their_draws(one: Purpose, other: Purpose) -> None:
    assert (draws(one) == draws(other)) == (one == other)


def test_all_purposes_of_a_campaign_have_different_draws() -> None:
    numbers: list[list[int]] = [[], *([i] for i in range(9)), *([i, j] for i in range(9) for j in range(9))]
    every = [draws((seed, stream, own)) for seed in (0, 1) for stream in Stream for own in numbers]
    assert len({one[0] for one in every}) == len(every)


def test_draws_depend_on_seed_and_purpose_alone() -> None:
    settings = Settings(seed=1, per_round=3, strategy="random")
    settings.rng(Stream.PLAN, 1).random(100)  # what was drawn before does not matter
    drawn = settings.rng(Stream.PLAN, 1).integers(2**62, size=3)
    np.testing.assert_array_equal(drawn, draws((1, Stream.PLAN, [1])))
    np.testing.assert_array_equal(drawn, Settings(seed=1).rng(Stream.PLAN, 1).integers(2**62, size=3))


def test_every_stream_has_a_number_of_its_own() -> None:
    assert len({int(stream) for stream in Stream}) == len(Stream.__members__)
