"""Messages between a checker and the confined process: JSON and bytes, since to unpickle answers would execute them."""

from __future__ import annotations

import json
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

_HEAD = struct.Struct("<II")  # bytes of the JSON, number of blobs
_LENGTH = struct.Struct("<Q")
_MAX_BLOBS, _MAX_MESSAGE = 1 << 16, 2 << 30  # bytes

Answer = tuple[Any, list[bytes]]  # data of JSON, and bytes


class Channel:
    """Messages over a socket; wait: called before each read."""

    def __init__(self, connection: socket.socket, wait: Callable[[socket.socket], None] = lambda _: None) -> None:
        self._connection, self._wait = connection, wait

    def send(self, data: object, blobs: Sequence[bytes]) -> None:
        text = json.dumps(data).encode()
        lengths = b"".join(_LENGTH.pack(len(each)) for each in blobs)
        self._connection.sendall(_HEAD.pack(len(text), len(blobs)) + lengths + text)
        for each in blobs:
            self._connection.sendall(each)

    def receive(self) -> Answer:
        """Raises EOFError at the end, and ValueError for what is no message."""
        length, count = _HEAD.unpack(self._read(_HEAD.size))
        if count > _MAX_BLOBS:
            raise ValueError(f"{count} blobs")
        lengths = [_LENGTH.unpack(self._read(_LENGTH.size))[0] for _ in range(count)]
        if length + sum(lengths) > _MAX_MESSAGE:
            raise ValueError(f"{length + sum(lengths)} bytes")
        text = self._read(length)
        return _printable(json.loads(text)), [bytes(self._read(each)) for each in lengths]

    def send_object(self, value: object) -> None:
        """For the confined process alone, which may execute what it is sent."""
        content = pickle.dumps(value)
        self._connection.sendall(_LENGTH.pack(len(content)))
        self._connection.sendall(content)

    def receive_object(self) -> Any:
        return pickle.loads(self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0]))

    def close(self) -> None:
        self._connection.close()

    def _read(self, count: int) -> bytearray:
        content = bytearray()
        while len(content) < count:
            self._wait(self._connection)
            part = self._connection.recv(min(count - len(content), 1 << 20))
            if not part:
                raise EOFError
            content += part
        return content


def _printable(value: Any) -> Any:
    """The value with texts that move no cursor and change no colours of a terminal."""
    if isinstance(value, str):
        return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in value)
    if isinstance(value, list):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return value
