"""The table of libraries of operations that Ferry knows: their packages, operations, and versions that fit.

The names were read from the registrations of the packages' newest wheels. A package whose versions are those of
TensorFlow (tensorflow-text, ydf-tf) fits by the first two numbers; of others the table says which version was built
for which TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.runtimes.tensorflow.graph_nodes import names


@dataclass(frozen=True, slots=True)
class Library:
    """A package with operations.

    Args:
        package: its name at the package index.
        module: the name of its folder, which a Python program imports.
        files: patterns of its shared libraries, below the folder of the module.
        prefix: of the names of its operations; empty without one.
        operations: the names of its others.
        harmless: the operations that reach nothing outside of the model; None: all of them.
        versions: for each TensorFlow, by its first two numbers, the version that fits; empty: the same two numbers.
        extra: the extra of Ferry that installs it; empty without one.
    """

    package: str
    module: str
    files: tuple[str, ...]
    prefix: str = ""
    operations: frozenset[str] = frozenset()
    harmless: frozenset[str] | None = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    extra: str = ""

    def has(self, operation: str) -> bool:
        return operation in self.operations or bool(self.prefix and operation.startswith(self.prefix))

    def is_harmless(self, operation: str) -> bool:
        return self.harmless is None or operation in self.harmless

    def fitting(self, tensorflow: str) -> str:
        """The version for a TensorFlow, such as '2.21.*' for '2.21.0'; empty if none fits."""
        minor = _minor(tensorflow)
        return self.versions.get(minor, "") if self.versions else f"{minor}.*"

    def fits(self, version: str, tensorflow: str) -> bool:
        """Whether an installed version was built for a TensorFlow."""
        wanted = self.fitting(tensorflow)
        return bool(wanted) and (version == wanted or version.startswith(wanted.removesuffix("*")))

    @property
    def newest(self) -> tuple[str, str]:
        """The newest TensorFlow of `versions`, and the version for it."""
        return list(self.versions.items())[-1]


_SIMPLE_ML = names("""
    SimpleMLCreateModelResource SimpleMLInferenceLeafIndexOpWithHandle SimpleMLInferenceOp SimpleMLInferenceOpWithHandle
    SimpleMLLoadModelFromPath SimpleMLLoadModelFromPathWithHandle
""")

#: In this order: the first library that fits is advised.
LIBRARIES: tuple[Library, ...] = (
    # All of its operations compute with their operands; a model of a tokenizer is an operand or an attribute.
    Library(
        "tensorflow-text",
        "tensorflow_text",
        ("python/ops/*.so",),
        "TFText>",
        names("""
            CaseFoldUTF8 ConstrainedSequence FastBertNormalize FastWordpieceTokenizeWithOffsets FindSourceOffsets
            MaxSpanningTree NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize RegexSplitWithOffsets RougeL
            SentenceFragments SentenceFragmentsV2 SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp
            SentencepieceStringToIdOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp
            SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets TokenizerFromLogits UnicodeScriptTokenizeWithOffsets
            WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets
        """),
        harmless=None,
        extra="text",
    ),
    # Loading reads a forest at a path: forbidden_operations.py demands that it is one of the model.
    Library("ydf-tf", "ydf_tf", ("inference.so",), "", _SIMPLE_ML, harmless=None, extra="forests"),
    Library(
        "tensorflow-decision-forests",
        "tensorflow_decision_forests",
        ("tensorflow/ops/inference/inference.so",),
        "",
        _SIMPLE_ML,
        harmless=None,
        versions={"2.19": "1.12.*"},
    ),
    Library(
        "scann",
        "scann",
        ("scann_ops/cc/_scann_ops.so",),
        "Scann>",
        harmless=names("""
            Scann>ScannCreateSearcher Scann>ScannSearch Scann>ScannSearchBatched Scann>ScannToTensors
            Scann>TensorsToScann
        """),
        versions={"2.19": "1.4.0", "2.20": "1.4.2"},
    ),
    # Most of its operations read files or connect.
    Library(
        "tensorflow-io",
        "tensorflow_io",
        ("python/ops/libtensorflow_io.so",),
        "IO>",
        harmless=names("""
            IO>AudioDecodeAAC IO>AudioDecodeFlac IO>AudioDecodeMP3 IO>AudioDecodeVorbis IO>AudioDecodeWAV
            IO>AudioEncodeFlac IO>AudioEncodeVorbis IO>AudioEncodeWAV IO>AudioResample IO>DecodeAVIF
            IO>DecodeDICOMImage IO>DecodeDICOMData IO>DecodeExr IO>DecodeExrInfo IO>DecodeHdr IO>DecodeJPEG2K
            IO>DecodeJpegExif IO>DecodeNV12 IO>DecodePnm IO>DecodeTiff IO>DecodeTiffInfo IO>DecodeWebP IO>DecodeYUY2
            IO>DrawBoundingBoxesV3 IO>EncodeBmp IO>EncodeGif IO>OrderIndices IO>RE2FullMatch
        """),
        versions={"2.16": "0.37.*"},
    ),
    Library(
        "tensorflow-addons",
        "tensorflow_addons",
        ("custom_ops/*/*.so",),
        "Addons>",
        harmless=None,
        versions={"2.15": "0.23.*"},
    ),
    Library(
        "tensorflow-recommenders-addons",
        "tensorflow_recommenders_addons",
        ("dynamic_embedding/core/*.so",),
        "TFRA>",
        versions={"2.16": "0.8.*"},
    ),
    Library(
        "struct2tensor",
        "struct2tensor",
        ("ops/*.so",),
        "",
        names("""
            DecodeProtoMap DecodeProtoMapV2 DecodeProtoSparseV2 DecodeProtoSparseV3 DecodeProtoSparseV4
            EquiJoinAnyIndices EquiJoinIndices ParquetDataset RunLengthBefore
        """),
        versions={"2.17": "0.48.*"},
    ),
    Library(
        "tensorflow-compression",
        "tensorflow_compression",
        ("cc/libtensorflow_compression.so",),
        "",
        names("""
            CreateRangeDecoder CreateRangeEncoder EntropyDecodeChannel EntropyDecodeFinalize EntropyDecodeIndex
            EntropyEncodeChannel EntropyEncodeFinalize EntropyEncodeIndex PmfToQuantizedCdf RunLengthDecode
            RunLengthEncode RunLengthGammaDecode RunLengthGammaEncode StochasticRound
        """),
        versions={"2.14": "2.14.*"},
    ),
    Library("tensorflow-quantum", "tensorflow_quantum", ("core/ops/**/*.so",), "Tfq", versions={"2.18": "0.7.*"}),
)  # fmt: skip


def libraries_of(operation: str) -> Iterator[Library]:
    """The known libraries with an operation."""
    return (library for library in LIBRARIES if library.has(operation))


def known_as(name: str) -> Library | None:
    """The known library whose package or module has this name."""
    plain = name.lower().replace("-", "_").replace(".", "_")
    return next((library for library in LIBRARIES if library.module == plain or _plain(library) == plain), None)


def _plain(library: Library) -> str:
    return library.package.replace("-", "_")


def _minor(tensorflow: str) -> str:
    return ".".join(tensorflow.split(".")[:2])
