from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Fragments(_message.Message):
    __slots__ = ("lengths", "timestamp_deltas_ms", "raw_events")
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_DELTAS_MS_FIELD_NUMBER: _ClassVar[int]
    RAW_EVENTS_FIELD_NUMBER: _ClassVar[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    timestamp_deltas_ms: _containers.RepeatedScalarFieldContainer[int]
    raw_events: RawEvents
    def __init__(self, lengths: _Optional[_Iterable[int]] = ..., timestamp_deltas_ms: _Optional[_Iterable[int]] = ..., raw_events: _Optional[_Union[RawEvents, _Mapping]] = ...) -> None: ...

class RawEvents(_message.Message):
    __slots__ = ("lengths", "steps", "texts")
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    steps: _containers.RepeatedScalarFieldContainer[int]
    texts: str
    def __init__(self, lengths: _Optional[_Iterable[int]] = ..., steps: _Optional[_Iterable[int]] = ..., texts: _Optional[str] = ...) -> None: ...
