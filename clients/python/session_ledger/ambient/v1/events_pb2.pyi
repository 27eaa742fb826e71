import datetime

from session_ledger.ambient.v1 import common_pb2 as _common_pb2
from session_ledger.ambient.v1 import compression_pb2 as _compression_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PushSessionEventRequest(_message.Message):
    __slots__ = ("session_id", "event_type", "payload", "completed_at", "event_count", "idempotency_key", "producer_epoch", "created_at", "fragments")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    event_type: str
    payload: str
    completed_at: _timestamp_pb2.Timestamp
    event_count: int
    idempotency_key: str
    producer_epoch: int
    created_at: _timestamp_pb2.Timestamp
    fragments: _compression_pb2.Fragments
    def __init__(self, session_id: _Optional[str] = ..., event_type: _Optional[str] = ..., payload: _Optional[str] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event_count: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., producer_epoch: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., fragments: _Optional[_Union[_compression_pb2.Fragments, _Mapping]] = ...) -> None: ...

class SessionEvent(_message.Message):
    __slots__ = ("id", "session_id", "seq", "event_type", "payload", "created_at", "completed_at", "event_count", "fragments", "nonconformant", "deduplicated", "run_id", "watch_state")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    NONCONFORMANT_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATED_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WATCH_STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    session_id: str
    seq: int
    event_type: str
    payload: str
    created_at: _timestamp_pb2.Timestamp
    completed_at: _timestamp_pb2.Timestamp
    event_count: int
    fragments: _compression_pb2.Fragments
    nonconformant: bool
    deduplicated: bool
    run_id: str
    watch_state: _common_pb2.WatchState
    def __init__(self, id: _Optional[str] = ..., session_id: _Optional[str] = ..., seq: _Optional[int] = ..., event_type: _Optional[str] = ..., payload: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event_count: _Optional[int] = ..., fragments: _Optional[_Union[_compression_pb2.Fragments, _Mapping]] = ..., nonconformant: bool = ..., deduplicated: bool = ..., run_id: _Optional[str] = ..., watch_state: _Optional[_Union[_common_pb2.WatchState, str]] = ...) -> None: ...

class WatchSessionEventsRequest(_message.Message):
    __slots__ = ("session_id", "after_seq", "snapshot_only", "expand", "event_types", "run_id", "state_frames")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ONLY_FIELD_NUMBER: _ClassVar[int]
    EXPAND_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_seq: int
    snapshot_only: bool
    expand: bool
    event_types: _containers.RepeatedScalarFieldContainer[str]
    run_id: str
    state_frames: bool
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., snapshot_only: bool = ..., expand: bool = ..., event_types: _Optional[_Iterable[str]] = ..., run_id: _Optional[str] = ..., state_frames: bool = ...) -> None: ...

class ListSessionEventsRequest(_message.Message):
    __slots__ = ("session_id", "page_size", "after_seq", "before_seq", "descending", "event_types", "run_id", "created_after", "created_before", "expand")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    DESCENDING_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    EXPAND_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    page_size: int
    after_seq: int
    before_seq: int
    descending: bool
    event_types: _containers.RepeatedScalarFieldContainer[str]
    run_id: str
    created_after: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    expand: bool
    def __init__(self, session_id: _Optional[str] = ..., page_size: _Optional[int] = ..., after_seq: _Optional[int] = ..., before_seq: _Optional[int] = ..., descending: bool = ..., event_types: _Optional[_Iterable[str]] = ..., run_id: _Optional[str] = ..., created_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expand: bool = ...) -> None: ...

class ListSessionEventsResponse(_message.Message):
    __slots__ = ("items", "next_after_seq", "next_before_seq", "has_more")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEXT_BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SessionEvent]
    next_after_seq: int
    next_before_seq: int
    has_more: bool
    def __init__(self, items: _Optional[_Iterable[_Union[SessionEvent, _Mapping]]] = ..., next_after_seq: _Optional[int] = ..., next_before_seq: _Optional[int] = ..., has_more: bool = ...) -> None: ...
