# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest
import yaml
from praxis_agent.book import load_book, normalise, recipe_folder
from praxis_agent.recipe import RecipeError, parse_recipe, walk

ROOT = Path(__file__).parents[4]

GOOD = """
schema_version: 1
name: demo
embodiments: [libero_7d]
instructions: [put the bowl on the plate]
anchors:
  plate: {find: plate}
  bowl: {find: bowl, where: {nearest_to: plate}}
plan:
  - locate: [bowl]
  - move_to: {at: bowl, offset: [0.0, 0.05, 0.1]}
"""


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def test_good_recipe_parses():
    recipe = parse_recipe(GOOD)
    assert recipe.anchors['bowl'].where.references == ['plate']
    assert recipe.plan[1].move_to.gripper == 'open'
    assert recipe.step_count == 2


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        # Absolute coordinates, in whatever disguise.
        (changed('{find: plate}', '{find: plate, xyz: [0.1, 0.2, 0.9]}'), 'xyz'),
        (changed('{find: plate}', '{position: [0.1, 0.2, 0.9]}'), 'position'),
        (changed('{find: plate}', '{find: plate, where: [0.1, 0.2, 0.9]}'), 'where'),
        (changed('{find: plate}', '{find: plate, where: {near: [0.1, 0.2]}}'), 'near'),
        (changed('find: bowl', 'find: [512, 300]'), 'find'),
        (changed('find: bowl', "find: '0.1 0.2 0.9'"), 'find'),
        (changed('nearest_to: plate', 'nearest_to: [0.1, 0.2, 0.9]'), 'nearest_to'),
        (changed('at: bowl', 'at: [0.1, 0.2, 0.9]'), 'at'),
        (changed('at: bowl,', 'xyz: [0.1, 0.2, 0.9],'), 'xyz'),
        (changed('[0.0, 0.05, 0.1]', '[0.0, 0.05, 0.9]'), 'offset'),
        (changed('[0.0, 0.05, 0.1]', '[0.0, 0.05]'), 'offset'),
        # References.
        (changed('nearest_to: plate', 'nearest_to: stove'), 'stove'),
        (changed('nearest_to: plate', 'nearest_to: bowl'), 'no other anchor'),
        (changed('{find: plate}', '{find: plate, where: {left_of: bowl}}'), 'circle'),
        (changed('at: bowl', 'at: mug'), 'mug'),
        (changed('locate: [bowl]', 'locate: [mug]'), 'mug'),
        (changed('nearest_to: plate', 'nearest_to: plate, leftmost: true'), 'exactly one'),
        # Form.
        (changed('name: demo', 'name: demo\nextra: 1'), 'extra'),
        (changed('schema_version: 1', 'schema_version: 2'), 'schema_version'),
        (changed('locate: [bowl]', 'fly: [bowl]'), 'fly'),
        (changed('locate: [bowl]', 'locate: [bowl]\n    release: {}'), 'a step is one of'),
        (changed('at: bowl,', 'at: hand, yaw: along,'), 'no long side'),
        ('- a list', 'mapping'),
        ('a: [', 'not YAML'),
    ],
)
def test_bad_recipe_is_refused_by_name(text, words):
    with pytest.raises(RecipeError, match=words) as error:
        parse_recipe(text, 'demo.yaml')
    assert str(error.value).startswith('demo.yaml: ')


def test_instruction_is_found_whatever_its_case_articles_and_stops():
    book = load_book(recipe_folder(), 'libero_7d')
    found = book.find('Put bowl, on THE plate.')
    assert found is not None and found.name == 'libero_goal_bowl_plate'


def test_unknown_instruction_finds_nothing_and_names_the_nearest():
    book = load_book(recipe_folder(), 'libero_7d')
    assert book.find('put the bowl on the stove') is None
    assert book.find('') is None
    nearest = book.nearest('put the bowl on the stove')
    assert nearest[0].startswith('libero_goal_bowl_plate: ')
    assert len(nearest) == 3


def test_recipes_of_another_embodiment_are_not_offered():
    assert load_book(recipe_folder(), 'tabletop_7d').find('put the bowl on the plate') is None
    assert load_book(recipe_folder(), 'nobody').recipes == []


@pytest.mark.parametrize('contract', ['libero', 'tabletop', 'tabletop_joint'])
def test_every_contract_has_recipes(contract):
    text = (ROOT / 'params' / 'robots' / f'{contract}.yaml').read_text()
    book = load_book(recipe_folder(), yaml.safe_load(text)['interface']['embodiment'])
    assert len(book.recipes) >= 3


def test_two_recipes_may_not_share_name_or_sentence(tmp_path):
    (tmp_path / 'a.yaml').write_text(GOOD)
    (tmp_path / 'b.yaml').write_text(GOOD)
    with pytest.raises(RecipeError, match=r"b\.yaml: name 'demo' is taken by a.yaml"):
        load_book(tmp_path, 'libero_7d')
    (tmp_path / 'b.yaml').write_text(changed('name: demo', 'name: other'))
    with pytest.raises(RecipeError, match='belongs to'):
        load_book(tmp_path, 'libero_7d')


def test_empty_folder_is_an_error(tmp_path):
    with pytest.raises(RecipeError, match='no recipes'):
        load_book(tmp_path, 'libero_7d')


def test_walk_goes_into_attempts():
    kinds = [
        step.kind
        for recipe in load_book(recipe_folder(), 'tabletop_7d').recipes
        for step in walk(recipe.plan)
    ]
    assert kinds.count('attempt') == 4 and 'release' in kinds


def test_normalise_keeps_the_words_that_matter():
    assert normalise('Pick up the black bowl, and place it on a plate!') == (
        'pick up black bowl and place it on plate'
    )


def test_message_names_file_key_and_value(tmp_path):
    (tmp_path / 'bad.yaml').write_text(
        """
schema_version: 1
name: bad
embodiments: [x]
instructions: [fly]
anchors: {cube: {find: cube}}
plan:
  - move_to: {at: cube, xyz: [0.1, 0.2, 0.3]}
  - set_gripper: {gripper: ajar}
  - teleport: {}
"""
    )
    with pytest.raises(RecipeError) as caught:
        load_book(tmp_path, 'x')
    text = str(caught.value)
    assert text.startswith(f'{tmp_path / "bad.yaml"}: ')
    assert 'plan.0.move_to.xyz: unknown key (got [0.1, 0.2, 0.3])' in text
    assert 'plan.1.set_gripper.gripper: ' in text and "(got 'ajar')" in text
    assert 'plan.2.teleport: unknown key' in text
