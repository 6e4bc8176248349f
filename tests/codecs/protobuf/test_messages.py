"""Our messages are TensorFlow's on the wire."""

import importlib
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, text_format

from app.codecs.protobuf import messages
from app.codecs.protobuf.messages import enum_numbers, message_class, pool, service_descriptor

MODULES = {
    "tensorflow.TensorProto": "tensorflow.core.framework.tensor_pb2",
    "tensorflow.TensorShapeProto": "tensorflow.core.framework.tensor_shape_pb2",
    "tensorflow.TensorInfo": "tensorflow.core.protobuf.meta_graph_pb2",
    "tensorflow.SignatureDef": "tensorflow.core.protobuf.meta_graph_pb2",
    "tensorflow.Example": "tensorflow.core.example.example_pb2",
    "tensorflow.Features": "tensorflow.core.example.feature_pb2",
    "tensorflow.Feature": "tensorflow.core.example.feature_pb2",
    "tensorflow.BytesList": "tensorflow.core.example.feature_pb2",
    "tensorflow.FloatList": "tensorflow.core.example.feature_pb2",
    "tensorflow.Int64List": "tensorflow.core.example.feature_pb2",
}

#: Not of inference; TensorProto's are of messages that two bytes on the wire make large.
LEFT_OUT = {
    "tensorflow.TensorInfo": {"coo_sparse", "composite_tensor"},
    "tensorflow.TensorProto": {"resource_handle_val", "variant_val"},
}


def fields(descriptor):
    """What the wire knows of a message."""
    return {
        field.number: (
            field.name,
            field.type,
            field.is_repeated,
            field.message_type.full_name if field.message_type else None,
            field.containing_oneof.name if field.containing_oneof else None,
        )
        for field in descriptor.fields
    }


@pytest.mark.parametrize("name", MODULES)
def test_a_message_has_tensorflows_fields(name):
    theirs = fields(getattr(importlib.import_module(MODULES[name]), name.split(".")[-1]).DESCRIPTOR)
    ours = fields(message_class(name).DESCRIPTOR)
    missing = {field[0] for number, field in theirs.items() if number not in ours}
    assert missing == LEFT_OUT.get(name, set())
    assert ours == {number: theirs[number] for number in ours}


def test_types_have_tensorflows_numbers():
    types_pb2 = importlib.import_module("tensorflow.core.framework.types_pb2")
    assert enum_numbers("tensorflow.DataType") == dict(types_pb2.DataType.items())


def test_error_codes_are_the_canonical_ones_of_grpc():
    grpc = importlib.import_module("grpc")
    assert enum_numbers("tensorflow.error.Code") == {code.name: code.value[0] for code in grpc.StatusCode}


def test_every_file_is_in_the_set():
    folder = Path(messages.__file__).parent
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "messages.binpb").read_bytes()).file
    ours = {file.name for file in files if not file.name.startswith("google/")}
    texts = {str(file.relative_to(folder)) for file in folder.rglob("*.proto")}
    assert ours == texts | {"grpc/reflection_v1alpha.proto"}  # which compile.sh makes of v1


@pytest.mark.parametrize(
    ("service", "methods"),
    [
        (
            "tensorflow.serving.PredictionService",
            ["Classify", "GetModelMetadata", "MultiInference", "Predict", "Regress"],
        ),
        ("tensorflow.serving.ModelService", ["GetModelStatus", "HandleReloadConfigRequest"]),
    ],
)
def test_services_have_their_methods(service, methods):
    assert sorted(service_descriptor(service).methods_by_name) == methods


def test_the_open_inference_protocol_streams_one_method_only():
    methods = service_descriptor("inference.GRPCInferenceService").methods
    assert [method.name for method in methods if method.server_streaming] == ["ModelStreamInfer"]
    assert len(methods) == 20


def test_unknown_names_are_key_errors():
    for find in (message_class, enum_numbers, service_descriptor):
        with pytest.raises(KeyError):
            find("tensorflow.NoSuchThing")


def test_a_config_file_parses_as_text():
    text = """model_config_list { config { name: "m" base_path: "/models/m" model_platform: "tensorflow"
      model_version_policy { specific { versions: 1 versions: 2 } } version_labels { key: "stable" value: 1 } } }"""
    config = text_format.Parse(text, message_class("tensorflow.serving.ModelServerConfig")())
    (model,) = config.model_config_list.config
    assert list(model.model_version_policy.specific.versions) == [1, 2]
    assert dict(model.version_labels) == {"stable": 1}


def test_metadata_packs_into_any():
    signatures = message_class("tensorflow.serving.SignatureDefMap")()
    signatures.signature_def["serving_default"].inputs["x"].name = "x:0"
    reply = message_class("tensorflow.serving.GetModelMetadataResponse")()
    reply.metadata["signature_def"].Pack(signatures)
    assert reply.metadata["signature_def"].type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"


def test_messages_live_in_one_pool():
    request = message_class("tensorflow.serving.PredictRequest")()
    assert type(request.inputs["x"]) is message_class("tensorflow.TensorProto")
    assert pool() is pool()
