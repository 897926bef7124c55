# SPDX-License-Identifier: Apache-2.0
"""The recipes of one embodiment, looked up by sentence. Imports no rclpy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from praxis_agent.recipe import Recipe, RecipeError, parse_recipe


def normalise(instruction: str) -> str:
    """Instruction without case, punctuation and articles."""
    tokens = re.findall(r"[a-z0-9']+", instruction.lower())
    return ' '.join(token for token in tokens if token not in ('a', 'an', 'the'))


@dataclass(frozen=True)
class Book:
    """All recipes for one embodiment."""

    recipes: Sequence[Recipe]

    def find(self, instruction: str) -> Recipe | None:
        """Recipe whose sentence this is, None if there is none; nothing is guessed."""
        wanted = normalise(instruction)
        for recipe in self.recipes:
            if wanted and wanted in (normalise(sentence) for sentence in recipe.instructions):
                return recipe
        return None

    def nearest(self, instruction: str, count: int = 3) -> list[str]:
        """Sentences most like this one, best first, as ``name: sentence``."""
        wanted = normalise(instruction)
        scored = []
        for recipe in self.recipes:
            likeness, sentence = max(
                (_likeness(wanted, normalise(sentence)), sentence)
                for sentence in recipe.instructions
            )
            scored.append((likeness, f'{recipe.name}: {sentence}'))
        return [text for _, text in sorted(scored, key=lambda item: -item[0])[:count]]


def _likeness(first: str, second: str) -> float:
    a, b = set(first.split()), set(second.split())
    shared = len(a & b) / max(1, len(a | b))
    return shared + difflib.SequenceMatcher(None, first, second).ratio()


def load_book(folder: str | Path, embodiment: str) -> Book:
    """Recipes of a folder that fit an embodiment.

    Raises:
        RecipeError: A recipe is invalid, two share a name, or two share a sentence on one
            embodiment.
    """
    recipes: list[Recipe] = []
    names: dict[str, str] = {}
    sentences: dict[tuple[str, str], str] = {}
    files = sorted(Path(folder).glob('*.yaml'))
    if not files:
        raise RecipeError(f'{folder}: no recipes')
    for file in files:
        recipe = parse_recipe(file.read_text(encoding='utf-8'), str(file))
        if recipe.name in names:
            raise RecipeError(
                f'{file.name}: name {recipe.name!r} is taken by {names[recipe.name]}'
            )
        names[recipe.name] = file.name
        for body in recipe.embodiments:
            for sentence in recipe.instructions:
                key = (body, normalise(sentence))
                if sentences.setdefault(key, recipe.name) != recipe.name:
                    raise RecipeError(
                        f'{file.name}: {sentence!r} belongs to {sentences[key]!r} already'
                    )
        if embodiment in recipe.embodiments:
            recipes.append(recipe)
    return Book(recipes)


def recipe_folder() -> Path:
    """Folder of the recipes that come with the package."""
    return Path(__file__).parent / 'recipes'
