"""Predict bodies as .npz: arrays by name in a zip archive. Pure.

The sizes that the archive declares are added up before anything is inflated, and no member grows beyond its own.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from app.codecs.arrays import cast
from app.codecs.body_format import BodyForm, PredictBody, ReplyForm
from app.codecs.errors import BodyTooLarge
from app.codecs.npy import check_numpy, read_npy, write_npy
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature

_SUFFIX = ".npy"

#: What ends an archive: a signature, and among other things the size of its directory.
_END = struct.Struct("<4s8xI4x2x")
_END_SIGNATURE = b"PK\x05\x06"
_ZIP64_SIGNATURE, _ZIP64_SIZE = b"PK\x06\x07", 20

#: Some thousand members; reading the directory takes a while for each.
_MAX_DIRECTORY_BYTES = 256 * 1024

#: What the standard library raises of an archive that is none.
_FAULTS = (BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError)


def read(body: bytes, max_bytes: int) -> PredictBody:
    """Raises InvalidRequest; BodyTooLarge where it would grow beyond `max_bytes`."""
    _check_directory(body)
    try:
        with ZipFile(BytesIO(body)) as archive:
            _check_members(archive, max_bytes)
            contents = {member.filename: _inflate(archive, member) for member in archive.infolist()}
    except _FAULTS as error:
        raise InvalidRequest(f"The body is no valid .npz archive: {str(error)[:256]}") from error
    arrays = {
        name.removesuffix(_SUFFIX): read_npy(content, f"Array {name[:256]!r}") for name, content in contents.items()
    }

    def inputs(signature: ModelSignature) -> dict[str, Array]:
        specs = signature.inputs
        # Names that are not the signature's are rejected with all others' requests, by Model.
        return {name: cast(array, specs[name]) if name in specs else array for name, array in arrays.items()}

    return PredictBody(inputs)


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """Stored, not deflated: numbers hardly shrink."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_STORED) as archive:
        for name, array in response.outputs.items():
            archive.writestr(name + _SUFFIX, write_npy(array))
    return file.getvalue()


def _inflate(archive: ZipFile, member: ZipInfo) -> bytes:
    """Asked for all there is, zipfile would inflate more than the size declared, and then cut it."""
    with archive.open(member) as file:
        return file.read(member.file_size)


def _check_directory(body: bytes) -> None:
    """Raises InvalidRequest unless the archive ends plainly, as numpy writes it, with a directory of sane size."""
    end = body[-_END.size :]
    plain = len(end) == _END.size and end.startswith(_END_SIGNATURE) and end.endswith(b"\0\0")
    if not plain or body[-_END.size - _ZIP64_SIZE :].startswith(_ZIP64_SIGNATURE):
        raise InvalidRequest("The body is no .npz archive, or one with a comment or in the zip64 form")
    if _END.unpack(end)[1] > _MAX_DIRECTORY_BYTES:
        raise InvalidRequest(f"The .npz archive's directory is larger than {_MAX_DIRECTORY_BYTES} bytes")


def _check_members(archive: ZipFile, max_bytes: int) -> None:
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise InvalidRequest("The .npz archive has two members of the same name")
    for member in members:
        if not member.filename.endswith(_SUFFIX):
            raise InvalidRequest(f"Member {member.filename[:256]!r}: expected a name that ends in .npy")
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InvalidRequest(f"Member {member.filename[:256]!r} must be stored or deflated")
    if sum(member.file_size for member in members) > max_bytes:
        raise BodyTooLarge(f"The .npz archive holds more than max_body_bytes, {max_bytes} bytes")


FORM = BodyForm(("application/x-npz",), read, ReplyForm(check_numpy, write))
