"""Models that would reach outside are not served, and everybody who asks is told why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support.processes import serving
from tests.support.savedmodels import make_half_plus_two


def make_python(path: Path) -> None:
    """x [batch] -> y, by Python code that no SavedModel holds."""
    module = tf.Module()

    def call(x: Any) -> Any:
        return {"y": tf.py_function(lambda x: x, [x], tf.float32)}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(module, str(path), signatures=module.call)


def make_reader(path: Path) -> None:
    """name [batch] -> content: the file of that name."""
    module = tf.Module()

    def call(name: Any) -> Any:
        return {"content": tf.map_fn(tf.io.read_file, name)}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([None], tf.string, name="name")])
    tf.saved_model.save(module, str(path), signatures=module.call)


def test_such_a_model_is_not_available_and_others_serve(tmp_path: Path) -> None:
    models = tmp_path / "models"
    make_half_plus_two(models / "half" / "1")
    make_python(models / "python" / "1")
    make_reader(models / "reader" / "1")
    with serving(models, tmp_path / "log") as server:
        for name, operation in (("python", "EagerPyFunc"), ("reader", "ReadFile")):
            (status,) = server.client.get(f"/v1/models/{name}").json()["model_version_status"]
            assert status["state"] == "END"
            assert f"its operation {operation} " in status["status"]["error_message"]
            assert "allowed_operations" in status["status"]["error_message"]
            assert operation in server.client.get("/readyz").text
        reply = server.client.post("/v1/models/reader:predict", json={"instances": ["/etc/hostname"]})
        assert reply.status_code in (404, 503)
        reply = server.client.post("/v1/models/half:predict", json={"instances": [1.0]})
        assert reply.json() == {"predictions": [2.5]}
