"""Predict bodies in numpy's .npz format: arrays by name in a zip archive.

Names and declared sizes are checked before any member is inflated, and no member grows beyond its declared size.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from app.codecs.arrays import cast
from app.codecs.at_once import MOST_INFLATED_BYTES, TakesLong
from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat
from app.codecs.errors import BodyTooLarge
from app.codecs.npy import check_numpy, read_npy, write_npy
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature
from app.core.validation import check_names

_SUFFIX = ".npy"

#: The last record of an archive without a comment: signature, size of its directory, and fields that are not used.
_END = struct.Struct("<4s8xI4x2x")
_END_SIGNATURE = b"PK\x05\x06"
_ZIP64_SIGNATURE, _ZIP64_SIZE = b"PK\x06\x07", 20

#: zipfile needs 20 us for each member: a directory may have this many bytes, and a part of the body's. Chosen: an
#: honest directory takes less than a third, also with arrays of one number.
_FREE_DIRECTORY_BYTES, _DIRECTORY_PART = 4096, 3

#: The members may take this many bytes, and this many times those of the body: as with a Content-Encoding.
_FREE_BYTES, _MOST_RATIO = 1024 * 1024, 200

#: Errors of zipfile for a damaged archive.
_FAULTS = (BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError)


def read(body: bytes, max_bytes: int, *, at_once: bool = False) -> PredictBody:
    """The content of an .npz body.

    Raises:
        InvalidRequest: the body is no archive of arrays that numpy writes.
        BodyTooLarge: the inflated members are too large.
        TakesLong: `at_once` is set, and there are many members, or large ones.
    """
    _check_directory(body)
    if at_once and _END.unpack(body[-_END.size :])[1] > _FREE_DIRECTORY_BYTES:
        raise TakesLong
    try:
        archive = ZipFile(BytesIO(body))
    except _FAULTS as error:
        raise _invalid(error) from error
    _check_members(archive, min(max_bytes, _FREE_BYTES + _MOST_RATIO * len(body)))
    if at_once and sum(member.file_size for member in archive.infolist()) > MOST_INFLATED_BYTES:
        raise TakesLong

    def inputs(signature: ModelSignature) -> dict[str, Array]:
        members = {member.filename.removesuffix(_SUFFIX): member for member in archive.infolist()}
        check_names(signature, members.keys())
        arrays = {name: read_npy(_inflate(archive, each), f"Array {each.filename!r}") for name, each in members.items()}
        return {name: cast(array, signature.inputs[name]) for name, array in arrays.items()}

    return PredictBody(inputs)


def _invalid(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"The body is not a valid .npz archive: {str(error)[:256]}")


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    """The archive of all outputs, stored, as deflate hardly shortens numbers."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_STORED) as archive:
        for name, array in response.outputs.items():
            archive.writestr(name + _SUFFIX, write_npy(array))
    return file.getvalue()


def _inflate(archive: ZipFile, member: ZipInfo) -> bytes:
    """The content of a member, read with its declared size: without it zipfile inflates more, and then truncates."""
    try:
        with archive.open(member) as file:
            return file.read(member.file_size)
    except _FAULTS as error:
        raise _invalid(error) from error


def _check_directory(body: bytes) -> None:
    """Check that the archive ends as numpy's archives do, with a directory of limited size. Raises InvalidRequest."""
    end = body[-_END.size :]
    plain = len(end) == _END.size and end.startswith(_END_SIGNATURE) and end.endswith(b"\0\0")
    if not plain or body[-_END.size - _ZIP64_SIZE :].startswith(_ZIP64_SIGNATURE):
        raise InvalidRequest(
            "The body is not an .npz archive, or it has a comment or a zip64 ending, which are not supported"
        )
    if _END.unpack(end)[1] > _FREE_DIRECTORY_BYTES + len(body) // _DIRECTORY_PART:
        raise InvalidRequest(
            f"The .npz archive's directory is larger than a third of it and {_FREE_DIRECTORY_BYTES} bytes"
        )


def _check_members(archive: ZipFile, max_bytes: int) -> None:
    """Check names, compression and sizes of the members. Raises InvalidRequest, BodyTooLarge."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise InvalidRequest("The .npz archive has two members of the same name")
    for member in members:
        if not member.filename.endswith(_SUFFIX):
            raise InvalidRequest(f"Member {member.filename[:256]!r}: expected a name that ends in .npy")
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InvalidRequest(f"Member {member.filename[:256]!r}: expected compression 'stored' or 'deflated'")
    if sum(member.file_size for member in members) > max_bytes:
        raise BodyTooLarge(
            f"The .npz archive holds more than {max_bytes} bytes: max_body_bytes, or {_MOST_RATIO} times its size,"
            " or what a small container has memory for"
        )


FORMAT = BodyFormat(("application/x-npz",), read, ReplyFormat(check_numpy, write))
