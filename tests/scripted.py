"""A person at the page, for tests and benchmarks: knows the class of every image, and acts as people do."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import Page, expect

from served import wait_for

KEYS = {"similar": "ArrowRight", "dissimilar": "ArrowLeft"}
SHOWN = "() => document.body.dataset.pair || document.body.dataset.sheet || ''"
IMAGES = "all => all.map((one) => Number(one.dataset.image))"
TILES = "all => all.map((one) => [...one.querySelectorAll('img')].map((img) => Number(img.dataset.image)))"
DIGITS = "1234567890"


class Person:
    """Somebody who knows the class of every image, looks at pairs and sheets, and sometimes slips."""

    def __init__(self, page: Page, classes: list[str], slips: float = 0.0) -> None:
        self.page = page
        self.classes = classes
        self.slips = slips
        self.rng = np.random.default_rng(0)
        self.presses = 0
        self.answers = 0

    def shown(self) -> str:
        """The pair or the sheet on the screen; nothing if there is none."""
        return str(self.page.evaluate(SHOWN))

    def wait(self) -> bool:
        """Wait for a pair or a sheet; False if nothing is left to ask."""
        settled = self.page.locator("#empty-title", has_text="Everything is settled")
        wait_for(lambda: bool(self.shown()) or settled.is_visible())
        return bool(self.shown())

    def tiles(self) -> list[bool]:
        """Whether the pair of each tile is similar; a tile of one image is a pair with the prototype."""
        prototype = self.page.locator("#prototype img").evaluate_all(IMAGES)
        shown = self.page.locator(".tile").evaluate_all(TILES)
        return [len({self.classes[image] for image in (*ids, *prototype)}) == 1 for ids in shown]

    def mark(self, verdicts: list[bool]) -> None:
        """Change the marks that are wrong, by key where there is one."""
        marks = self.page.locator(".tile").evaluate_all("all => all.map((one) => one.dataset.mark)")
        marked_similar = np.array([mark == "similar" for mark in marks])
        for index in np.flatnonzero(marked_similar != np.array(verdicts)).tolist():
            if index < len(DIGITS):
                self.page.keyboard.press(DIGITS[index])
            else:
                self.page.locator(".tile").nth(index).click()
            self.presses += 1

    def act(self) -> None:
        """Answer what is shown, once its pictures are there."""
        before = self.shown()
        expect(self.page.locator("#stage")).not_to_contain_class("loading")
        if self.page.locator("#sheet").is_visible():
            verdicts = [similar != self.slip() for similar in self.tiles()]
            self.mark(verdicts)
            self.page.keyboard.press("Enter")
            self.answers += len(verdicts)
        else:
            a, b = (int(image) for image in before.split("-"))
            similar = (self.classes[a] == self.classes[b]) != self.slip()
            self.page.keyboard.press(KEYS["similar" if similar else "dissimilar"])
            self.answers += 1
        self.presses += 1
        wait_for(lambda: self.shown() != before)

    def slip(self) -> bool:
        return bool(self.rng.random() < self.slips)
