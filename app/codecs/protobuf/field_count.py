"""The count of a serialized message's fields, which says how long a parser would hold the GIL in one call."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from app.codecs.protobuf.wire import FIXED_BYTES, LENGTH_DELIMITED, VARINT, read_varint

#: The bytes of a packed list of varints that take as long as a field. Measured: 7 ns a byte.
_PACKED_BYTES = 256

#: All wire types but groups, which no message here has.
_READ = {VARINT, LENGTH_DELIMITED, *FIXED_BYTES}

#: Types of fields whose content is no varints: numbers of fixed size, strings, bytes.
_COPIED = {
    *(FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED64),
    *(FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_SFIXED32),
    *(FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES),
}


def has_many_fields(content: bytes, descriptor: Descriptor, limit: int) -> bool:
    """Whether a message and the messages in it have more than `limit` fields; True if that cannot be seen.

    A string and a packed list are one field, whatever their length, but a list of varints counts one more for each 256
    bytes. A field takes less than a microsecond.
    """
    parts: list[tuple[int, int, Descriptor]] = [(0, len(content), descriptor)]
    fields = 0
    while parts:
        place, end, message = parts.pop()
        while place < end:
            fields += 1
            tag, place = (content[place], place + 1) if content[place] < 0x80 else read_varint(content, place)
            wire_type = tag & 7
            if fields > limit or wire_type not in _READ:
                return True
            if wire_type != LENGTH_DELIMITED:
                place = read_varint(content, place)[1] if wire_type == VARINT else place + FIXED_BYTES[wire_type]
                continue
            length, place = read_varint(content, place)
            field = message.fields_by_number.get(tag >> 3)
            if field is not None and field.message_type is not None:
                parts.append((place, min(place + length, end), field.message_type))
            elif field is not None and field.type not in _COPIED:
                fields += min(length, end - place) // _PACKED_BYTES
            place += length
    return fields > limit
