# SPDX-License-Identifier: Apache-2.0
"""Matches a noun phrase to category names: "the black bowl" -> akita_black_bowl."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

COLOURS = frozenset(
    [
        'black',
        'white',
        'red',
        'green',
        'blue',
        'yellow',
        'orange',
        'brown',
        'grey',
        'purple',
        'pink',
        'silver',
        'gold',
    ]
)

# Words that say nothing about which object is meant.
_IGNORED = frozenset(['a', 'an', 'the', 'this', 'that', 'one', 'some', 'of', 'object', 'item'])

# Packaging that speakers add to, or leave out of, the name of a product.
_PACKAGING = frozenset(
    ['box', 'can', 'bottle', 'carton', 'pack', 'packet', 'package', 'tin', 'jar']
)

_SYNONYMS = {
    'gray': 'grey',
    'cup': 'mug',
    'block': 'cube',
    'hob': 'stove',
    'cooker': 'stove',
    'dish': 'plate',
    'cupboard': 'cabinet',
    'cookie': 'cookie',
    'biscuit': 'cookie',
    'ball': 'sphere',
}

_IRREGULAR = {
    'cookies': 'cookie',
    'boxes': 'box',
    'dishes': 'dish',
    'knives': 'knife',
    'shelves': 'shelf',
    'glasses': 'glass',
}


@dataclass(frozen=True)
class Match:
    """A category that a prompt may mean.

    Attributes:
        label: Category name as the back end knows it.
        score: 0 to 1; 1 where every word agrees.
    """

    label: str
    score: float


def words(phrase: str) -> list[str]:
    """Normalised words of a prompt or a category name: lower case, singular, no articles."""
    found = []
    for token in re.findall(r'[a-z]+|\d+', phrase.lower()):
        word = _singular(token)
        word = _SYNONYMS.get(word, word)
        if word not in _IGNORED:
            found.append(word)
    return found


def _singular(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 4 and word.endswith('ies'):
        return word[:-3] + 'y'
    if len(word) > 3 and word.endswith('s') and not word.endswith(('ss', 'us', 'is')):
        return word[:-1]
    return word


def score(prompt: str, label: str) -> float:
    """How well a prompt names a category.

    The last noun of the prompt must be in the name, and no colour may contradict. The score is the
    harmonic mean of the shares of words that agree, where packaging words count for nothing if the
    other side lacks them.

    Returns:
        0 to 1; 0 where the prompt does not name the category.
    """
    asked, named = words(prompt), words(label)
    if not asked or not named:
        return 0.0
    asked_set, named_set = set(asked), set(named)
    only_asked = asked_set - named_set - _PACKAGING
    only_named = named_set - asked_set - _PACKAGING
    shared = asked_set & named_set
    if not shared - COLOURS or (not shared - _PACKAGING and shared != asked_set):
        return 0.0
    if only_asked & COLOURS and named_set & COLOURS:
        return 0.0
    nouns = [word for word in asked if word not in _PACKAGING | COLOURS] or asked
    if nouns[-1] not in named_set:
        return 0.0
    precision = len(shared) / (len(shared) + len(only_asked))
    recall = len(shared) / (len(shared) + len(only_named))
    return 2 * precision * recall / (precision + recall)


def rank(prompt: str, labels: Iterable[str], min_score: float = 0.2) -> list[Match]:
    """Categories that a prompt may mean, best first; ties keep alphabetical order."""
    matches = [Match(label, score(prompt, label)) for label in sorted(set(labels))]
    matches = [match for match in matches if match.score > 0 and match.score >= min_score]
    return sorted(matches, key=lambda match: -match.score)


def best(prompt: str, labels: Iterable[str], min_score: float = 0.2) -> list[str]:
    """Categories that share the best score; more than one where the prompt is ambiguous."""
    matches = rank(prompt, labels, min_score)
    return [m.label for m in matches if m.score >= matches[0].score - 1e-9]


def nearest(prompt: str, labels: Iterable[str], count: int = 3) -> list[str]:
    """Categories most alike by spelling, for the reason of a failure."""
    known = {' '.join(words(label)): label for label in sorted(set(labels))}
    close = difflib.get_close_matches(' '.join(words(prompt)), known, n=count, cutoff=0.3)
    return [known[name] for name in close]


def not_found(prompt: str, labels: Iterable[str]) -> str:
    """Why a prompt found nothing, in words."""
    known = sorted(set(labels))
    near = nearest(prompt, known)
    hint = f'; nearest: {", ".join(near)}' if near else ''
    return f'nothing in view is called {prompt!r}{hint}; known: {", ".join(known) or "nothing"}'
