"""StableHLO is read as its specification says; what is broken or beyond what is followed is unreadable."""

import pytest

from app.runtimes.tensorflow.private_api import stablehlo_text
from app.runtimes.tensorflow.stablehlo.module import Unreadable, parse, returned_unchanged
from tests.runtimes.tensorflow.stablehlo.stablehlo_models import COUNTED, KEPT, bytecode

REDUCED = """
module @reduced {
  func.func public @main(%arg0: tensor<?x3xf32>) -> tensor<?xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.add across dimensions = [1]
      : (tensor<?x3xf32>, tensor<f32>) -> tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}
"""


def text_of(source: str) -> str:
    text = stablehlo_text(bytecode(source))
    assert text is not None
    return text


def test_an_argument_that_is_returned_through_a_call_is_unchanged() -> None:
    assert returned_unchanged(parse(text_of(KEPT))) == {1: 0}


def test_a_result_that_is_computed_is_not_unchanged() -> None:
    assert returned_unchanged(parse(text_of(COUNTED))) == {}


def test_operations_within_a_region_are_not_those_of_the_function() -> None:
    main = parse(text_of(REDUCED))["main"]
    assert [each.name for each in main.operations] == ["constant_v1", "reduce_v1"]
    assert main.results == main.operations[1].results


def test_types_of_another_number_than_operands_are_unreadable() -> None:
    text = text_of(REDUCED)
    assert text.count("!vhlo.tensor_v1<!vhlo.f32_v1>) -> !vhlo.tensor_v1<?x!vhlo.f32_v1>") == 1
    with pytest.raises(Unreadable, match="reduce_v1 has other operands"):
        parse(text.replace(", !vhlo.tensor_v1<!vhlo.f32_v1>) -> !vhlo.tensor_v1<?x", ") -> !vhlo.tensor_v1<?x"))


@pytest.mark.parametrize("broken", [b"garbage", bytecode(KEPT)[:-9], bytecode(KEPT)[:60]])
def test_broken_bytecode_has_no_text(broken: bytes) -> None:
    assert stablehlo_text(broken) is None


@pytest.mark.parametrize("cut", [3, 8, 12])
def test_text_that_ends_or_goes_on_otherwise_is_unreadable(cut: int) -> None:
    lines = text_of(KEPT).splitlines()
    with pytest.raises(Unreadable):
        parse("\n".join([*lines[:2], "what is this", *lines[2:cut]]))
