"""Constructions of screening designs: the properties that define them, and the rows of the package pydoe."""

from __future__ import annotations

import itertools

import numpy as np
import pydoe
import pytest

from iotrial.design import constructions

ROWS = range(4, 257, 4)


@pytest.mark.parametrize("rows", [2**n for n in range(2, 9)] + [12, 24, 48, 96, 192, 20, 40, 80, 160])
def test_columns_of_a_plackett_burman_design_are_balanced_and_orthogonal(rows: int) -> None:
    made = constructions.plackett_burman(rows)
    assert made is not None
    assert made.shape == (rows, rows - 1)
    assert not made.sum(axis=0).any()
    assert np.array_equal(made.T @ made, rows * np.eye(rows - 1))


def test_no_plackett_burman_design_is_made_for_other_numbers_of_rows() -> None:
    assert [rows for rows in ROWS if constructions.plackett_burman(rows) is not None] == [
        4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "resolution", "rows"), [(5, 5, 16), (8, 5, 64), (17, 5, 256), (6, 6, 32), (12, 6, 256)]
)
def test_no_product_of_fewer_columns_than_the_resolution_is_constant(
    columns: int, resolution: int, rows: int
) -> None:
    """The definition of resolution, and the sizes of Draper and Mitchell (1968)."""
    made = constructions.fractional(columns, resolution)
    assert made is not None
    assert made.shape == (rows, columns)
    for size in range(1, resolution):
        for chosen in itertools.combinations(range(columns), size):
            assert made[:, chosen].prod(axis=1).sum() == 0, chosen


def test_the_rows_are_those_of_the_package_that_made_them_for_stored_trials() -> None:
    for rows in ROWS:
        made = constructions.plackett_burman(rows)
        if made is not None:
            assert np.array_equal(made, pydoe.pbdesign(rows - 1)), rows
    for resolution, most in ((5, 29), (6, 24)):
        for columns in range(resolution, most + 1):
            made = constructions.fractional(columns, resolution)
            assert np.array_equal(made, pydoe.fracfact_by_res(columns, resolution)), (resolution, columns)
        assert constructions.fractional(most + 1, resolution) is None
        assert len(pydoe.fracfact_by_res(most + 1, resolution)) > 1024
