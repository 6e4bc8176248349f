import pytest

from app.codecs.protobuf.text_format import parse_text
from app.core.errors import InvalidRequest


def test_text_becomes_a_message() -> None:
    message = parse_text('server_key: "k" client_verify: true  # why', "tensorflow.serving.SSLConfig")
    assert (message.server_key, message.client_verify, message.custom_ca) == ("k", True, "")


@pytest.mark.parametrize("text", ["nonsense", "server_key: 5", "server_key {", 'no_such: "field"', "\x00"])
def test_text_of_another_message_is_rejected_in_one_line(text: str) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        parse_text(text, "tensorflow.serving.SSLConfig")
    assert str(rejected.value).startswith("Error parsing text-format tensorflow.serving.SSLConfig: 1:")
    assert "\n" not in str(rejected.value)
