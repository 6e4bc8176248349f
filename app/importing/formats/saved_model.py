"""SavedModels: those that can be served are taken as they are; others get what they lack.

- Its graph has other tags than 'serve' (TF-Hub, training): its saved_model.pb gets them.
- It has no signature: its functions become signatures (graphs/callables.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from app.core.inference import DEFAULT_SIGNATURE, Array
from app.importing.graphs.callables import read_callables
from app.importing.graphs.ends import Ends, ends_of_signature
from app.importing.graphs.graph_file import check_bounds
from app.importing.graphs.graph_source import GraphSession, check_meta_graph, new_session
from app.importing.graphs.links import check_links
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Endpoint, Source
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import first_meaningful_line, model_name
from app.runtimes.tensorflow.private_api import SavedModelProto
from app.runtimes.tensorflow.saved_model.files import missing_part
from app.runtimes.tensorflow.saved_model.loading_folder import LoadingFolder
from app.runtimes.tensorflow.saved_model.signature_defs import TAGS, read_signatures, with_types_of

#: Files and folders of a SavedModel that its version has, beside its graph.
_PARTS = ("variables", "assets", "assets.extra")

#: The most bytes of a graph as text, which takes far longer to parse.
_MOST_TEXT_BYTES = 16 << 20


def read(path: Path, order: ImportOrder) -> Source:  # noqa: ARG001 - a reader has one form
    """The model of a folder with a SavedModel. Raises CannotImport."""
    # 1. The graph, looked at before anything of it runs.
    check_links(path, _root_of_links(path))
    saved = _saved_model(path)
    graph = _chosen_graph(saved)
    check_bounds(graph.graph_def, f"{path.name}/saved_model.pb")
    tags = sorted(graph.meta_info_def.tags)
    if not _callable_signatures(graph):
        return read_callables(path, graph, tags)
    check_meta_graph(graph)

    # 2. Its files, with a graph that is served.
    original = LoadingFolder(path, graph, as_functions=False)
    session = new_session(tf.Graph())
    try:
        with session.graph.as_default(), private_api.quiet():
            tf.compat.v1.saved_model.load(session, tags, str(original.path))
    except Exception as error:  # whatever TensorFlow raises for a broken SavedModel
        raise CannotImport(f"TensorFlow cannot load it: {first_meaningful_line(error)}") from None
    with_types_of(session.graph, graph)
    served, notes = _served(graph)
    files = {name: path / name for name in _PARTS if (path / name).is_dir()}
    files["saved_model.pb"] = path / "saved_model.pb"
    if notes or len(saved.meta_graphs) > 1 or not files["saved_model.pb"].exists():
        files["saved_model.pb"] = _written(served)
    return Source("SavedModel", list(_endpoints(served, session, original)), files=files, notes=notes)


def _root_of_links(path: Path) -> Path:
    """The folder out of which no link may lead: of a snapshot of Hugging Face, that with the files of all."""
    above = [each for each in path.resolve().parents if each.name == "snapshots"]
    return above[0].parent if above and (above[0].parent / "blobs").is_dir() else path


# --- the graph ---


def _saved_model(path: Path) -> Any:
    """The SavedModel proto of a folder. Raises CannotImport: it is not whole."""
    if missing := missing_part(path):
        raise CannotImport(f"{path.name}: {missing}")
    file, text = path / "saved_model.pb", path / "saved_model.pbtxt"
    try:
        if file.exists():
            return SavedModelProto.FromString(file.read_bytes())
        if text.stat().st_size > _MOST_TEXT_BYTES:
            raise CannotImport(f"{text.name} is {text.stat().st_size:,} bytes; expected at most {_MOST_TEXT_BYTES:,}")
        return text_format.Parse(text.read_text(), SavedModelProto())
    except (DecodeError, text_format.ParseError, UnicodeDecodeError, RecursionError):
        raise CannotImport(f"{path.name}: its saved_model file is cut short or no SavedModel") from None


def _chosen_graph(saved: Any) -> Any:
    """The graph for inference: that tagged 'serve', without tags (TF-Hub), with 'serve' and a device, or any other."""

    def rank(graph: Any) -> int:
        tags = frozenset(graph.meta_info_def.tags)
        if tags == TAGS:
            return 0
        if not tags:
            return 1
        return 4 if "train" in tags else 2 if "serve" in tags else 3

    if not saved.meta_graphs:
        raise CannotImport("saved_model.pb holds no graph")
    return min(saved.meta_graphs, key=rank)


def _callable_signatures(graph: Any) -> list[str]:
    """The names of the signatures that callers can use."""
    try:
        return sorted(read_signatures(graph, "it"))
    except ValueError:
        return []


def _served(graph: Any) -> tuple[Any, list[str]]:
    """A graph as a server takes it, and what was changed."""
    served, notes = type(graph)(), list[str]()
    served.CopyFrom(graph)
    tags = sorted(graph.meta_info_def.tags)
    if frozenset(tags) != TAGS:
        served.meta_info_def.tags[:] = sorted(TAGS)
        notes.append(f"its graph is tagged {tags or 'nothing'}, and is tagged 'serve' in the import")
    names = _callable_signatures(graph)
    if DEFAULT_SIGNATURE not in names and not graph.HasField("object_graph_def"):
        first = "default" if "default" in names else names[0]
        served.signature_def[DEFAULT_SIGNATURE].CopyFrom(graph.signature_def[first])
        del served.signature_def[first]
        notes.append(f"its signature {first!r} is {DEFAULT_SIGNATURE!r} in the import")
    return served, notes


def _written(graph: Any) -> Path:
    """A saved_model.pb with this graph, in a folder of the process for temporary files."""
    file = Path(tempfile.mkdtemp(prefix="ferry-import-")) / "saved_model.pb"
    file.write_bytes(SavedModelProto(saved_model_schema_version=1, meta_graphs=[graph]).SerializeToString())
    return file


# --- the source ---


def _endpoints(graph: Any, session: Any, alive: LoadingFolder) -> Iterator[Endpoint]:
    """The signatures that callers can use and whose tensors are dense; a session with the graph as it was answers."""
    for name, signature in read_signatures(graph, model_name(alive.path)).items():
        try:
            ends = ends_of_signature(graph.signature_def[name])
        except CannotImport:
            continue
        inputs = {
            each: tf.TensorSpec(signature.inputs[each].shape, signature.inputs[each].dtype.type, each)
            if signature.inputs[each].dtype != object
            else tf.TensorSpec(signature.inputs[each].shape, tf.string, each)
            for each in ends.inputs
        }
        yield Endpoint(inputs, dict, _Answers(session, ends, signature.defaults, alive).run, name)


class _Answers:
    """The answers of a session to a signature, with its default values.

    Args:
        alive: the folder whose files the session may read.
    """

    def __init__(self, session: Any, ends: Ends, defaults: Mapping[str, Array], alive: LoadingFolder) -> None:
        self._source = GraphSession(session, ends)
        self._defaults = defaults
        self._alive = alive

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._source.run({**self._defaults, **inputs})
