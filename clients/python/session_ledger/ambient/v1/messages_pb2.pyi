import datetime

from session_ledger.ambient.v1 import common_pb2 as _common_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PushSessionMessageRequest(_message.Message):
    __slots__ = ("session_id", "event_type", "payload", "idempotency_key", "producer_epoch", "sent_at", "sender")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    event_type: str
    payload: str
    idempotency_key: str
    producer_epoch: int
    sent_at: _timestamp_pb2.Timestamp
    sender: Sender
    def __init__(self, session_id: _Optional[str] = ..., event_type: _Optional[str] = ..., payload: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., producer_epoch: _Optional[int] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sender: _Optional[_Union[Sender, _Mapping]] = ...) -> None: ...

class Sender(_message.Message):
    __slots__ = ("id", "name", "display_name", "is_bot", "channel", "channel_id", "thread_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    IS_BOT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    display_name: str
    is_bot: bool
    channel: str
    channel_id: str
    thread_id: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., display_name: _Optional[str] = ..., is_bot: bool = ..., channel: _Optional[str] = ..., channel_id: _Optional[str] = ..., thread_id: _Optional[str] = ...) -> None: ...

class SessionMessage(_message.Message):
    __slots__ = ("id", "session_id", "seq", "event_type", "payload", "created_at", "sent_at", "sender", "deduplicated", "watch_state")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATED_FIELD_NUMBER: _ClassVar[int]
    WATCH_STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    session_id: str
    seq: int
    event_type: str
    payload: str
    created_at: _timestamp_pb2.Timestamp
    sent_at: _timestamp_pb2.Timestamp
    sender: Sender
    deduplicated: bool
    watch_state: _common_pb2.WatchState
    def __init__(self, id: _Optional[str] = ..., session_id: _Optional[str] = ..., seq: _Optional[int] = ..., event_type: _Optional[str] = ..., payload: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sender: _Optional[_Union[Sender, _Mapping]] = ..., deduplicated: bool = ..., watch_state: _Optional[_Union[_common_pb2.WatchState, str]] = ...) -> None: ...

class WatchSessionMessagesRequest(_message.Message):
    __slots__ = ("session_id", "after_seq", "snapshot_only", "state_frames")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ONLY_FIELD_NUMBER: _ClassVar[int]
    STATE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_seq: int
    snapshot_only: bool
    state_frames: bool
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., snapshot_only: bool = ..., state_frames: bool = ...) -> None: ...

class ListSessionMessagesRequest(_message.Message):
    __slots__ = ("session_id", "page_size", "after_seq", "before_seq", "descending", "event_types", "created_after", "created_before")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    DESCENDING_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    page_size: int
    after_seq: int
    before_seq: int
    descending: bool
    event_types: _containers.RepeatedScalarFieldContainer[str]
    created_after: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    def __init__(self, session_id: _Optional[str] = ..., page_size: _Optional[int] = ..., after_seq: _Optional[int] = ..., before_seq: _Optional[int] = ..., descending: bool = ..., event_types: _Optional[_Iterable[str]] = ..., created_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListSessionMessagesResponse(_message.Message):
    __slots__ = ("items", "next_after_seq", "next_before_seq", "has_more")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEXT_BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SessionMessage]
    next_after_seq: int
    next_before_seq: int
    has_more: bool
    def __init__(self, items: _Optional[_Iterable[_Union[SessionMessage, _Mapping]]] = ..., next_after_seq: _Optional[int] = ..., next_before_seq: _Optional[int] = ..., has_more: bool = ...) -> None: ...
