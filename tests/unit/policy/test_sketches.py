"""Sketches of texts: the share that two texts do not have in common, beside the exact one."""

import random

import pytest

from gossamer.policy.sketches import share_changed, sketch_of

WORDS = ("the", "of", "budget", "crawls", "site", "page", "change", "visits", "often", "rate", "fetch", "text", "more")


def words(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    endings = ("", "", ",", ".")
    return [f"{chance.choice(WORDS)}{chance.randrange(50) or ''}{chance.choice(endings)}" for _ in range(count)]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_the_share_is_about_that_of_the_words_that_were_replaced(share: float) -> None:
    estimates = []
    for seed in range(20):
        old = words(600, seed)
        new = old[: round(600 * (1 - share))] + words(round(600 * share), seed + 1000)
        estimates.append(share_changed(sketch_of(" ".join(old)), sketch_of(" ".join(new))))
    assert sum(estimates) / len(estimates) == pytest.approx(share, abs=0.07)
    assert max(abs(one - share) for one in estimates) < 0.3


def test_a_word_that_is_put_in_changes_little() -> None:
    old = words(600, 1)
    assert share_changed(sketch_of(" ".join(old)), sketch_of(" ".join([*old[:300], "entirely", *old[300:]]))) < 0.1


def test_the_ends_of_the_scale() -> None:
    text = " ".join(words(100, 1))
    assert share_changed(sketch_of(text), sketch_of(text)) == 0.01, "the texts differ, so it is not 0"
    assert share_changed(sketch_of(text), sketch_of("Something quite other.")) > 0.9
    assert sketch_of("") == b""
    assert share_changed(sketch_of(text), sketch_of(text * 2)) < 0.2


def test_scripts_without_blanks() -> None:
    old, new = "今日は晴れ。明日は雨です。週末は曇り、風が強い。", "今日は晴れ。明日は雪です。週末は曇り、風が強い。"
    assert 0.05 < share_changed(sketch_of(old), sketch_of(new)) < 0.6


def test_sketches_are_the_same_in_every_version() -> None:
    stored = "000000000000000c000000000000000000000000520000000044000000000000"
    assert sketch_of("One page, some words. Others.").hex() == stored
