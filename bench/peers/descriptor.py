"""What a peer's folder says about it: `peer.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.support.forms import FORMS

FOLDER = Path(__file__).parent
_WIRES = ("json", "binary")


class WrongDescriptor(ValueError):
    """`peer.toml` is not as bench/peers/README.md says; the text names the key."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`path` may contain {model}; `form` is a name in bench/support/forms.py."""

    path: str
    form: str


@dataclass(frozen=True, slots=True)
class Peer:
    """One server, or one loop in process, that the benchmark compares.

    Attributes:
        about: how it is tuned; printed under the table.
        command: what starts it. {python}, {port}, {folder}, {repository}, {saved_model} and {model} are filled in.
        endpoints: by wire ("json", "binary"); none means that it talks over its standard input and output.
        requirements: what its environment has; None means Ferry's own.
        interpreters: bases of its environment, the first found is taken; none means Ferry's.
        starts_alone: whether it measures something as it starts, so that no other may start at the same time.
        pausable: whether it works on after a pause (SIGSTOP) while others are measured; if not, each run starts it.
        workloads: those that it can take; none means all.
    """

    name: str
    title: str
    about: str
    command: tuple[str, ...]
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    distribution: str = ""
    requirements: Path | None = None
    interpreters: tuple[str, ...] = ()
    starts_alone: bool = False
    pausable: bool = True
    workloads: tuple[str, ...] = ()

    @property
    def in_process(self) -> bool:
        return not self.endpoints


def find_peers(folder: Path = FOLDER) -> dict[str, Peer]:
    """By name, which is the folder's; Ferry first. Raises WrongDescriptor."""
    found = [read_peer(file.parent) for file in sorted(folder.glob("*/peer.toml"))]
    return {peer.name: peer for peer in sorted(found, key=lambda peer: (not peer.name.startswith("ferry"), peer.name))}


def read_peer(folder: Path) -> Peer:
    document = tomllib.loads((folder / "peer.toml").read_text())
    where = f"{folder.name}/peer.toml"
    known = {
        "title",
        "about",
        "command",
        "endpoints",
        "variables",
        "distribution",
        "interpreters",
        "starts_alone",
        "pausable",
        "workloads",
    }
    for key in document:
        if key not in known:
            raise WrongDescriptor(f"{where} has {key}, but may have {', '.join(sorted(known))}")
    for key in ("title", "about", "command"):
        if key not in document:
            raise WrongDescriptor(f"{where} lacks {key}")
    requirements = folder / "requirements.txt"
    return Peer(
        name=folder.name,
        title=document["title"],
        about=document["about"],
        command=_strings(document["command"], f"command in {where}"),
        endpoints={wire: _endpoint(wire, each, where) for wire, each in document.get("endpoints", {}).items()},
        variables=dict(document.get("variables", {})),
        distribution=document.get("distribution", ""),
        requirements=requirements if requirements.is_file() else None,
        interpreters=_strings(document.get("interpreters", []), f"interpreters in {where}"),
        starts_alone=document.get("starts_alone", False),
        pausable=document.get("pausable", True),
        workloads=_strings(document.get("workloads", []), f"workloads in {where}"),
    )


def _endpoint(wire: str, document: Mapping[str, Any], where: str) -> Endpoint:
    if wire not in _WIRES:
        raise WrongDescriptor(f"endpoints.{wire} in {where} should be one of: {', '.join(_WIRES)}")
    endpoint = Endpoint(document.get("path", ""), document.get("form", ""))
    if not endpoint.path.startswith("/"):
        raise WrongDescriptor(f"endpoints.{wire}.path in {where} should start with /")
    if endpoint.form not in FORMS:
        raise WrongDescriptor(f"endpoints.{wire}.form in {where} should be one of: {', '.join(FORMS)}")
    return endpoint


def _strings(value: Sequence[str], where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongDescriptor(f"{where} should be a list of strings")
    return tuple(value)
