"""The access file: who may call, by API keys and by tokens. Its text, checked, and as values.

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

An error text says where and what is expected, never what stands there: it may be a key.
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

#: Bytes of the file. Chosen: some 10,000 keys.
_MOST_BYTES = 4 * 2**20

#: Mistakes that an error tells of; the others are counted. Chosen: what a person reads in a line of the log.
_MOST_MISTAKES = 8

_NEVER = datetime.max.replace(tzinfo=UTC)

#: What a signature may be made with: none of them is made with a secret that both sides have, so a public key cannot be
#: taken for one (RFC 8725, section 3.1), and `none` is not among them.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]

_Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(min_length=1, max_length=1024)]


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


#: `yes` is none.
_Number = Annotated[float, BeforeValidator(_no_switch), Field(allow_inf_nan=False)]


class AccessFileError(ValueError):
    """The file cannot be used. The text says where and why, and nothing of what stands there."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose tokens are accepted, and what they may do.

    Attributes:
        jwks: where its keys are: a URL, or the path of a file.
        claim: the claim that names groups, `a.b` for one within another; its value is a text, several separated by
            spaces, or a list.
        groups: the first that a token names says what it may do.
    """

    issuer: str
    audience: str
    jwks: str
    algorithms: tuple[str, ...]
    claim: str
    groups: Mapping[str, Rules]


@dataclass(frozen=True, slots=True)
class AccessFile:
    """What stands in an access file.

    Attributes:
        keys: by the SHA-256 of the key, 32 bytes.
        issuers: by their names, as in the claim `iss`.
    """

    keys: Mapping[bytes, Principal] = field(default_factory=dict)
    issuers: Mapping[str, Issuer] = field(default_factory=dict)

    def gone_since(self, before: AccessFile) -> Callable[[str], bool]:
        """Whether a caller of the file `before`, by name, has no credential by this file.

        In doubt it has none: not every name of a token says its issuer, so all go when an issuer comes or goes.
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
        """Not a number, which would be seconds since 1970, and not nothing, which would be never."""
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
        """Whoever can change the keys on their way can make tokens."""
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


#: Of these lists each entry is checked as soon as it was read.
_ENTRIES: Mapping[str, type[BaseModel]] = {"keys": _Key, "issuers": _Issuer}


class _Checked(yaml.ScalarNode):
    """In place of the nodes of an entry: what it is."""


class _Loader(Composer, yaml.CSafeLoader):
    """Scans with libyaml, and composes in Python, where it can be told what YAML and PyYAML leave open.

    - A field that is there twice is a mistake (YAML 1.2, 3.2.1.1). PyYAML takes the last: a list of keys would be lost.
    - Of an entry of a list nothing stays but what it is. A key has 100 objects of PyYAML: of 10,000 keys at once the
      collector of garbage walks them again and again, and each time stops the server: 0.6 s of 10,000 keys.
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
        """As it stands there if it has mistakes: the check of the document tells them, each with its place."""
        entry = self.construct_document(node)
        with suppress(ValidationError):
            return _ENTRIES[str(self._list)].model_validate(entry)
        return entry

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Here, before `<<` adds what others have."""
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
    """Raises AccessFileError."""
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
    """YAML, of which JSON is a part. Raises AccessFileError."""
    # 1. As a document. A text of YAML's errors shows lines of the file.
    try:
        document = _Loader(content.decode()).get_single_data()
    except AccessFileError:
        raise
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise AccessFileError(f"it is not YAML{line}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        raise AccessFileError("it is not YAML") from None

    # 2. Field by field.
    try:
        read = _Document.model_validate(document)
    except ValidationError as error:
        raise AccessFileError(_all_explained(error.errors(include_input=False))) from None

    # 3. As a whole: what has the same name, or the same key, would be confused.
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
    """SHA-256, as keys are known by. A slow hash is for what people think of; a key is 32 random bytes."""
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
    """`keys 2, sha256: ...`; what stands there is not shown."""
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
