from pathlib import Path

import pytest
import tensorflow as tf

from app.core.errors import InvalidRequest
from app.runtime import MeteredRuntime, RuntimeOptions
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from tests.support.forks.programs import run_program


def test_threads_are_set_before_tensorflow_starts_and_checked_after() -> None:
    program = """
import os
from app.runtime import RuntimeOptions, create_runtime
create_runtime("tensorflow", RuntimeOptions(intra_op_threads=3, inter_op_threads=2))
import tensorflow as tf
tf.constant(1) + 1
threading = tf.config.threading
print(threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads())
print(os.environ["TF_CPP_MIN_LOG_LEVEL"])
create_runtime("tensorflow", RuntimeOptions(intra_op_threads=3, inter_op_threads=2))
create_runtime("tensorflow", RuntimeOptions())
try:
    create_runtime("tensorflow", RuntimeOptions(intra_op_threads=3, inter_op_threads=4))
except RuntimeError as error:
    print(error)
"""
    done = run_program("-c", program)
    assert done.stdout.splitlines() == [
        "3 2",
        "3",
        "inter_op_threads cannot be set to 4: TensorFlow already runs in this process with another number",
    ]


def test_a_number_that_comes_too_late_is_named() -> None:
    tf.config.list_logical_devices()  # starts TensorFlow
    with pytest.raises(RuntimeError, match="intra_op_threads cannot be set to 9999"):
        TensorFlowRuntime(RuntimeOptions(intra_op_threads=9999))


def test_every_gpu_gets_memory_growth_and_as_many_run_models_as_replicas_are_wanted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grows = {}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:0", f"{kind}:1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", grows.__setitem__)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: {"device_name": f"Model of {gpu}"})
    assert TensorFlowRuntime(RuntimeOptions()).devices == ("GPU:0",)
    assert grows == {"GPU:0": True, "GPU:1": True}
    assert "TensorFlow uses 1 of 2 GPUs; set replicas to 0 to use all" in caplog.text
    logical = [tf.config.LogicalDevice(f"/device:GPU:{number}", "GPU") for number in range(2)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: logical)
    assert TensorFlowRuntime(RuntimeOptions(replicas=0)).devices == ("GPU:0", "GPU:1")
    assert TensorFlowRuntime(RuntimeOptions(replicas=2)).devices == ("GPU:0", "GPU:1")
    with pytest.raises(InvalidRequest, match="replicas is 3, but should be at most 2: TensorFlow sees 2 GPUs"):
        TensorFlowRuntime(RuntimeOptions(replicas=3))


@pytest.mark.parametrize(
    ("capability", "override", "wanted", "tf32"),
    [((9, 0), "", True, True), ((7, 5), "", True, False), ((8, 0), "0", True, False), ((9, 0), "", False, False)],
)
def test_gpus_from_compute_capability_8_on_compute_in_tf32_unless_they_may_not(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], override: str, wanted: bool, tf32: bool
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, grows: None)
    details = {"device_name": "H", "compute_capability": capability}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    try:
        runtime = TensorFlowRuntime(RuntimeOptions(tensor_float_32=wanted))
        assert runtime.batches_in_flight == 2
        assert runtime._kind == ("H in TF32" if tf32 else "H")  # whose remembered variants are used
        model = runtime.load(Path("models/digits/1"))
        assert {signature.tf32 for signature in model.signatures.values()} == {tf32}
        model.close()
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)


def test_tensorflow_that_runs_already_keeps_its_way_of_taking_a_gpus_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gpu: str, grows: bool) -> None:
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", refuse)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: {})
    assert TensorFlowRuntime(RuntimeOptions()).devices == ("GPU:0",)


def test_without_a_gpu_the_cpu_runs_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    runtime = TensorFlowRuntime(RuntimeOptions(batches_in_flight=2))
    assert runtime.devices == ("CPU:0",)
    assert runtime.batches_in_flight == 2


def test_only_devices_with_memory_of_their_own_tell_how_much_they_use() -> None:
    runtime = TensorFlowRuntime(RuntimeOptions())
    assert isinstance(runtime, MeteredRuntime)
    used = runtime.device_memory()
    assert list(used) == [name for name in runtime.devices if name.startswith("GPU")]
    assert all(0 <= now <= peak for now, peak in used.values())
