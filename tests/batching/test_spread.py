import pytest

from app.batching.cost_model import CostCurve
from app.batching.devices import rows_for_each

SIZES = (1, 2, 4, 8, 16, 32, 64)
BY_ROW = CostCurve(SIZES, tuple(0.001 * size for size in SIZES))
FIXED = CostCurve(SIZES, tuple(0.1 + 0.001 * size for size in SIZES))


@pytest.mark.parametrize(
    ("rows", "devices", "share"),
    [
        (64, 2, 32),
        (64, 4, 16),
        (64, 3, 32),  # 22 would be computed as 32
        (48, 2, 32),
        (2, 2, 1),
        (3, 2, 2),
        (3, 8, 1),
        (1, 2, 1),
        (64, 1, 64),
        (64, 0, 64),
        (200, 2, 200),  # more than one call anyway
    ],
)
def test_idle_devices_share_what_takes_its_time_by_the_row(rows: int, devices: int, share: int) -> None:
    assert rows_for_each(rows, devices, BY_ROW) == share


def test_what_takes_its_time_by_the_call_is_not_split() -> None:
    assert rows_for_each(64, 2, FIXED) == 64


def test_nor_what_costs_nobody_knows() -> None:
    assert rows_for_each(64, 2, None) == 64
