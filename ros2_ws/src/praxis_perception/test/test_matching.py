# SPDX-License-Identifier: Apache-2.0

import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_perception import matching

LIBERO = [
    'akita_black_bowl',
    'white_bowl',
    'plate',
    'glazed_rim_porcelain_ramekin',
    'cookies',
    'wooden_cabinet',
    'flat_stove',
    'cream_cheese',
    'alphabet_soup',
    'tomato_sauce',
    'wine_bottle',
    'red_coffee_mug',
    'white_yellow_mug',
    'basket',
]
TABLETOP = ['red cube', 'blue cube', 'green cube', 'bowl', 'can', 'table', 'robot']


@pytest.mark.parametrize(
    ('prompt', 'label'),
    [
        ('the black bowl', 'akita_black_bowl'),
        ('black bowls', 'akita_black_bowl'),
        ('a white bowl', 'white_bowl'),
        ('ramekin', 'glazed_rim_porcelain_ramekin'),
        ('the cookie box', 'cookies'),
        ('cream cheese box', 'cream_cheese'),
        ('can of alphabet soup', 'alphabet_soup'),
        ('stove', 'flat_stove'),
        ('the hob', 'flat_stove'),
        ('the wine bottle', 'wine_bottle'),
        ('red cup', 'red_coffee_mug'),
        ('Plates', 'plate'),
        ('yellow and white mug', 'white_yellow_mug'),
    ],
)
def test_prompt_names_its_category(prompt, label):
    assert matching.best(prompt, LIBERO) == [label]


def test_colour_tells_cubes_apart():
    assert matching.best('the red block', TABLETOP) == ['red cube']
    assert matching.best('cube', TABLETOP) == ['blue cube', 'green cube', 'red cube']
    assert matching.best('purple cube', TABLETOP) == []


@pytest.mark.parametrize(
    'prompt', ['teapot', 'black teapot', 'red', 'black', 'the', '', '42', 'box']
)
def test_prompt_without_a_known_noun_finds_nothing(prompt):
    assert matching.best(prompt, LIBERO) == []


def test_packaging_alone_names_only_what_is_called_so():
    assert matching.best('can', TABLETOP) == ['can']
    assert matching.best('bottle', LIBERO) == ['wine_bottle']


def test_score_threshold_applies():
    assert matching.rank('ramekin', LIBERO, min_score=0.9) == []


def test_reason_names_the_nearest_and_the_known():
    reason = matching.not_found('blak bowll', LIBERO)
    assert "'blak bowll'" in reason and 'nearest: akita_black_bowl' in reason
    assert 'known: akita_black_bowl, alphabet_soup' in reason
    assert 'known: nothing' in matching.not_found('cup', [])


@given(st.sampled_from(LIBERO))
def test_a_category_names_itself_best(label):
    assert matching.best(label.replace('_', ' '), LIBERO) == [label]
    assert matching.score(label, label) == 1.0


@given(st.text(), st.text())
def test_score_is_a_share_and_never_fails(prompt, label):
    assert 0.0 <= matching.score(prompt, label) <= 1.0
