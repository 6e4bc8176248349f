import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pipelines.references import ModelReference, PipelineInvalid, Reference, parse_model, parse_reference


@given(st.text(st.characters(exclude_characters="."), min_size=1), st.text(min_size=1))
def test_a_reference_reads_back_as_it_was_written(step: str, name: str) -> None:
    for reference in (Reference(step, name), Reference("", step)):
        assert parse_reference(str(reference)) == reference


def test_only_the_first_dot_parts_a_step_from_its_output() -> None:
    assert parse_reference("small.scores.0") == Reference("small", "scores.0")


@pytest.mark.parametrize("text", ["", ".", ".scores", "small."])
def test_a_reference_without_a_name_is_rejected(text: str) -> None:
    with pytest.raises(PipelineInvalid, match=r"should be an input of the pipeline or 'step\.output'"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("m", ModelReference("m")),
        ("m:12", ModelReference("m", version=12)),
        ("m:stable", ModelReference("m", label="stable")),
        ("m:a:b", ModelReference("m", label="a:b")),
    ],
)
def test_a_model_is_pinned_by_version_or_label_or_not_at_all(text: str, want: ModelReference) -> None:
    assert parse_model(text) == want
    assert str(want) == text


@pytest.mark.parametrize("text", ["", ":", ":1", "m:"])
def test_a_model_without_a_name_or_with_an_empty_pin_is_rejected(text: str) -> None:
    with pytest.raises(PipelineInvalid, match="should be 'name', 'name:label' or 'name:version'"):
        parse_model(text)


def test_a_version_of_thousands_of_digits_is_rejected() -> None:
    with pytest.raises(PipelineInvalid, match="at most 18 digits, not 5000"):
        parse_model("m:" + "1" * 5000)


def test_digits_of_other_scripts_are_a_label() -> None:
    assert parse_model("m:\u0663") == ModelReference("m", label="\u0663")
