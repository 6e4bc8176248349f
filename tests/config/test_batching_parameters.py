from pathlib import Path

import pytest

from app.config.batching_parameters import BatchingParameters, read_batching_parameters
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest


def read(folder: Path, text: str) -> BatchingParameters:
    file = folder / "batching.config"
    file.write_text(text)
    return read_batching_parameters(file)


def test_all_that_a_file_says(tmp_path: Path) -> None:
    text = """
    max_batch_size { value: 128 }
    batch_timeout_micros { value: 1500 }
    max_enqueued_batches { value: 10 }
    num_batch_threads { value: 4 }
    thread_pool_name { value: "batch_threads" }
    allowed_batch_sizes : 32
    allowed_batch_sizes : 128
    pad_variable_length_inputs: true
    """
    assert read(tmp_path, text) == BatchingParameters(128, (32, 128), 1.5, 10, 4, True)


def test_what_a_file_does_not_say_is_not_set(tmp_path: Path) -> None:
    assert read(tmp_path, "") == BatchingParameters()
    assert read(tmp_path, "").sizes(BatchSizes((3,))) == BatchSizes((3,))


def test_sizes_end_with_the_largest_execution(tmp_path: Path) -> None:
    splitting = "max_batch_size { value: 100 } max_execution_batch_size { value: 8 }"
    assert read(tmp_path, splitting).max_batch_size == 100
    split = read(tmp_path, f"{splitting} enable_large_batch_splitting {{ value: true }}")
    assert split.sizes(BatchSizes((3,))) == BatchSizes((1, 2, 4, 8))
    assert read(tmp_path, "allowed_batch_sizes: 3 allowed_batch_sizes: 5").sizes(BatchSizes((1,))) == BatchSizes((3, 5))


@pytest.mark.parametrize(
    ("text", "rejection"),
    [
        ("max_batch_size { value: 0 }", "max_batch_size must be at least 1, not 0"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must be at least 0, not -1"),
        ("max_batch_size { value: 2000000 }", "max_batch_size must be at most 1048576, not 2000000"),
        ("batch_timeout_micros { value: 10000001 }", "batch_timeout_micros must be at most 10000000, not 10000001"),
        ("num_batch_threads { value: 1025 }", "num_batch_threads must be at most 1024, not 1025"),
        (
            "max_enqueued_batches { value: 2000000000 }",
            "max_enqueued_batches must be at most 1073741824, not 2000000000",
        ),
        (
            " ".join(f"allowed_batch_sizes: {size}" for size in range(1, 1026)),
            "allowed_batch_sizes must be at most 1024 sizes of at most 1048576 rows, not 1025 up to 1025",
        ),
        ("num_batch_threads { value: 0 }", "num_batch_threads must be at least 1, not 0"),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: 4",
            "allowed_batch_sizes must be positive, ascending and end with 8, not 4",
        ),
        (
            "allowed_batch_sizes: 4 allowed_batch_sizes: 2",
            "allowed_batch_sizes must be positive and ascending, not 4, 2",
        ),
        ("allowed_batch_sizes: 0", "allowed_batch_sizes must be positive and ascending, not 0"),
    ],
)
def test_wrong_parameters_are_named_with_their_file(text: str, rejection: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        read(tmp_path, text)
    assert str(rejected.value) == f"{tmp_path}/batching.config: {rejection}"


def test_another_message_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"^Error parsing text-format tensorflow\.serving\.BatchingParameters: "):
        read(tmp_path, "model_config_list {}")
