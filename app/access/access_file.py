"""The access file: the callers that may call, by API keys and by tokens. Its text, checked, and as values.

    keys:
      - name: team-a
        sha256: 5e88...      # of the key; the key itself is nowhere
        models: [digits, "bert-*"]
        permissions: [infer, metadata]
        rate: 100            # requests a second
        burst: 200
        weight: 2
        expires: 2027-01-01T00:00:00Z
    issuers:
      - issuer: https://login.example.org/
        audience: ferry
        jwks: https://login.example.org/keys
        algorithms: [RS256]
        claim: groups
        groups:
          - {value: ml-team, models: ["*"], permissions: [infer, metadata]}

An error text says the place and what is expected, and never shows the text at that place: it may be a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)  # fmt: skip
from yaml.composer import Composer

from app.access.rules import ISSUED, Permission, Principal, Rules

#: The most bytes of the file. Chosen: some 10,000 keys.
_MOST_BYTES = 4 * 2**20

#: The most mistakes in an error text; further ones are counted. Chosen: a person reads so many in a line of the log.
_MOST_MISTAKES = 8

_NEVER = datetime.max.replace(tzinfo=UTC)

#: The algorithms of signatures. None uses a shared secret, so a public key cannot be taken for one (RFC 8725, section
#: 3.1), and `none` is not among them.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]

_Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(min_length=1, max_length=1024)]


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


#: A number; `yes` is none.
_Number = Annotated[float, BeforeValidator(_no_switch), Field(allow_inf_nan=False)]


class AccessFileError(ValueError):
    """The file cannot be used. The text says where and why, and shows nothing of the file."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer whose tokens are accepted, and the rules of their groups.

    Attributes:
        jwks: the place of its keys: a URL, or the path of a file.
        claim: the claim that names groups, `a.b` for a claim within another; its value is a text, several separated by
            spaces, or a list.
        groups: rules by group, in order: the first group that a token names counts.
    """

    issuer: str
    audience: str
    jwks: str
    algorithms: tuple[str, ...]
    claim: str
    groups: Mapping[str, Rules]


@dataclass(frozen=True, slots=True)
class AccessFile:
    """The content of an access file.

    Attributes:
        keys: principals by the SHA-256 of their key, 32 bytes.
        issuers: by their names, as in the claim `iss`.
    """

    keys: Mapping[bytes, Principal] = field(default_factory=dict)
    issuers: Mapping[str, Issuer] = field(default_factory=dict)

    def gone_since(self, before: AccessFile) -> Callable[[str], bool]:
        """A function that says of a caller of the file `before`, by name, whether it has no credential any more.

        In doubt it has none: the name of a token may not include its issuer, so all go when an issuer comes or goes.
        """
        names = {each.name for each in self.keys.values()}
        same_issuers = self.issuers.keys() == before.issuers.keys()
        return lambda name: not (same_issuers if name.startswith(ISSUED) else name in names)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    models: _Names
    permissions: Annotated[list[Permission], Field(min_length=1)]
    rate: Annotated[_Number, Field(ge=1e-6, le=1e9)] = inf  # an empty one is a mistake
    burst: Annotated[_Number, Field(ge=1, le=1e9)] = inf
    weight: Annotated[_Number, Field(ge=0.001, le=1000)] = 1.0

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.burst < inf and self.rate == inf:
            raise ValueError("burst limits nothing without rate")
        return self

    def rules(self) -> Rules:
        burst = max(1.0, self.rate) if self.burst == inf else self.burst
        return Rules(tuple(self.models), frozenset(self.permissions), self.rate, burst, self.weight)


class _Key(_Entry):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    expires: AwareDatetime = _NEVER

    @field_validator("expires", mode="before")
    @classmethod
    def _is_a_time(cls, expires: object) -> object:
        """Reject a number, which would be seconds since 1970, and null, which would be never."""
        if not isinstance(expires, datetime | str):
            raise ValueError("a time and its zone, such as 2027-01-01T00:00:00Z; for never leave it out")
        return expires

    def principal(self) -> Principal:
        return Principal(self.name, self.rules(), inf if self.expires == _NEVER else self.expires.timestamp())


class _Group(_Entry):
    value: Annotated[str, Field(min_length=1, max_length=256)]


class _Issuer(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    issuer: Annotated[str, Field(min_length=1, max_length=1024)]
    audience: Annotated[str, Field(min_length=1, max_length=1024)]
    jwks: Annotated[str, Field(min_length=1, max_length=2048)]
    algorithms: Annotated[list[Algorithm], Field(min_length=1)]
    claim: Annotated[str, Field(min_length=1, max_length=256)]
    groups: Annotated[list[_Group], Field(min_length=1, max_length=1024)]

    @field_validator("jwks")
    @classmethod
    def _is_safe(cls, jwks: str) -> str:
        """Reject a place of keys that others can change on the way: they could make tokens."""
        address = urlsplit(jwks)
        host = address.hostname or ""
        if Path(jwks).is_absolute() or (address.scheme == "https" and host):
            safe = address.username is None  # logs show it
        else:
            safe = address.scheme == "http" and _is_loopback(host) and address.username is None
        if not safe:
            raise ValueError("a URL of https without a user, or the absolute path of a file")
        return jwks

    def value(self) -> Issuer:
        groups = {each.value: each.rules() for each in self.groups}
        return Issuer(self.issuer, self.audience, self.jwks, tuple(self.algorithms), self.claim, groups)


#: The lists whose entries are checked one by one, as they are read.
_ENTRIES: Mapping[str, type[BaseModel]] = {"keys": _Key, "issuers": _Issuer}


class _Checked(yaml.ScalarNode):
    """A node that holds a checked entry in place of the entry's nodes."""


class _Loader(Composer, yaml.CSafeLoader):
    """A loader that scans with libyaml and composes in Python, with two rules that PyYAML lacks.

    - A repeated field is a mistake (YAML 1.2, 3.2.1.1). PyYAML takes the last one: a list of keys would be lost.
    - An entry of a list becomes its value at once. A key has 100 objects of PyYAML: with 10,000 keys the garbage
      collector walks them again and again, and stops the server for 0.6 s.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = 0
        self._list: object = None

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self._depth == 1:
            self._list = index.value if isinstance(index, yaml.ScalarNode) else None
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if self._depth == 2 and isinstance(parent, yaml.SequenceNode) and self._list in _ENTRIES:
            return _Checked(node.tag, self._checked(node), node.start_mark)
        return node

    def _checked(self, node: Any) -> object:
        """The entry, checked; with mistakes the raw entry, for the check of the document, whose errors have places."""
        entry = self.construct_document(node)
        with suppress(ValidationError):
            return _ENTRIES[str(self._list)].model_validate(entry)
        return entry

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Compose a mapping, and check its fields before `<<` adds others."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    raise AccessFileError(f"line {name.start_mark.line + 1} has a field that is there before")
                seen.add(name.value)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        return node.value if isinstance(node, _Checked) else super().construct_object(node, deep)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[_Key] = []
    issuers: list[_Issuer] = []


def read_access_file(path: Path) -> AccessFile:
    """The access file at a path. Raises AccessFileError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise AccessFileError(f"The access file {path} cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise AccessFileError(f"The access file {path} has more than {_MOST_BYTES} bytes")
    try:
        return parse_access_file(content)
    except AccessFileError as error:
        raise AccessFileError(f"The access file {path}: {error}") from None


def parse_access_file(content: bytes) -> AccessFile:
    """The access file in YAML, of which JSON is a part. Raises AccessFileError."""
    # 1. The document. Texts of YAML's errors are not passed on: they show lines of the file.
    try:
        document = _Loader(content.decode()).get_single_data()
    except AccessFileError:
        raise
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise AccessFileError(f"it is not YAML{line}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        raise AccessFileError("it is not YAML") from None

    # 2. The fields.
    try:
        read = _Document.model_validate(document)
    except ValidationError as error:
        raise AccessFileError(_all_explained(error.errors(include_input=False))) from None

    # 3. The whole: entries of equal name or key would be confused.
    keys = [(bytes.fromhex(each.sha256), each.principal()) for each in read.keys]
    _check_unique([principal.name for _, principal in keys], "key", "name")
    _check_unique([digest.hex() for digest, _ in keys], "key", "sha256", tell=False)
    _check_unique([each.issuer for each in read.issuers], "issuer", "issuer")
    for issuer in read.issuers:
        _check_unique([each.value for each in issuer.groups], "group", "value")
    if not (keys or read.issuers):
        raise AccessFileError("it has neither keys nor issuers, so nobody could call")
    return AccessFile(dict(keys), {each.issuer: each.value() for each in read.issuers})


def digest_of(credential: bytes) -> bytes:
    """The SHA-256 by which a key is known. A slow hash is for passwords; a key is 32 random bytes."""
    return hashlib.sha256(credential).digest()


def entry_of(
    name: str, key: str, *, models: Sequence[str], permissions: Sequence[str], expires: datetime | None
) -> str:
    """The lines of a new key under `keys`. Raises AccessFileError: a value is none that the file may have."""
    entry: dict[str, Any] = {
        "name": name,
        "sha256": digest_of(key.encode()).hex(),
        "models": list(models),
        "permissions": list(permissions),
    }
    if expires is not None:
        entry["expires"] = expires
    text: str = yaml.safe_dump({"keys": [entry]}, sort_keys=False, default_flow_style=None, width=1000)
    parse_access_file(text.encode())
    return text


def _check_unique(values: Sequence[str], what: str, name: str, *, tell: bool = True) -> None:
    seen: set[str] = set()
    for place, value in enumerate(values):
        if value in seen:
            told = f" {value!r}" if tell else ""
            raise AccessFileError(f"{what} {place + 1} has the {name}{told} of another one")
        seen.add(value)


def _all_explained(errors: Sequence[Any]) -> str:
    told = [_explained(each) for each in errors[:_MOST_MISTAKES]]
    if len(errors) > _MOST_MISTAKES:
        told.append(f"and {len(errors) - _MOST_MISTAKES} more")
    return "; ".join(told)


def _explained(error: Any) -> str:
    """The text of one mistake, `keys 2, sha256: ...`, without the value at that place."""
    if not error["loc"]:
        return "expected a mapping with keys, issuers or both"
    where = [f"{each} " if isinstance(each, str) else f"{each + 1}, " for each in error["loc"]]
    if error["type"] in {"extra_forbidden", "invalid_key"}:
        *where, _ = where
        return f"{''.join(where).strip(', ') or 'it'} has a field that is not known"
    expected = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch" and error["loc"][-1] == "sha256":
        expected = "expected the SHA-256 of the key, 64 hexadecimal digits (`ferry key new` prints it), not the key"
    return f"{''.join(where).strip(', ')}: {expected}"


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "127.0.0.1", "::1"}
