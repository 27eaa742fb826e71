import datetime

from session_ledger.ambient.v1 import common_pb2 as _common_pb2
from session_ledger.ambient.v1 import events_pb2 as _events_pb2
from session_ledger.ambient.v1 import messages_pb2 as _messages_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchEventsRequest(_message.Message):
    __slots__ = ("cursor", "start_time", "project_id", "event_types", "snapshot_only")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ONLY_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    start_time: _timestamp_pb2.Timestamp
    project_id: str
    event_types: _containers.RepeatedScalarFieldContainer[str]
    snapshot_only: bool
    def __init__(self, cursor: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., project_id: _Optional[str] = ..., event_types: _Optional[_Iterable[str]] = ..., snapshot_only: bool = ...) -> None: ...

class FeedEvent(_message.Message):
    __slots__ = ("event", "cursor", "project_id", "recorded_at", "watch_state")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDED_AT_FIELD_NUMBER: _ClassVar[int]
    WATCH_STATE_FIELD_NUMBER: _ClassVar[int]
    event: _events_pb2.SessionEvent
    cursor: str
    project_id: str
    recorded_at: _timestamp_pb2.Timestamp
    watch_state: _common_pb2.WatchState
    def __init__(self, event: _Optional[_Union[_events_pb2.SessionEvent, _Mapping]] = ..., cursor: _Optional[str] = ..., project_id: _Optional[str] = ..., recorded_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., watch_state: _Optional[_Union[_common_pb2.WatchState, str]] = ...) -> None: ...

class WatchMessagesRequest(_message.Message):
    __slots__ = ("cursor", "start_time", "project_id", "event_types", "snapshot_only")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ONLY_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    start_time: _timestamp_pb2.Timestamp
    project_id: str
    event_types: _containers.RepeatedScalarFieldContainer[str]
    snapshot_only: bool
    def __init__(self, cursor: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., project_id: _Optional[str] = ..., event_types: _Optional[_Iterable[str]] = ..., snapshot_only: bool = ...) -> None: ...

class FeedMessage(_message.Message):
    __slots__ = ("message", "cursor", "project_id", "recorded_at", "watch_state")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDED_AT_FIELD_NUMBER: _ClassVar[int]
    WATCH_STATE_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.SessionMessage
    cursor: str
    project_id: str
    recorded_at: _timestamp_pb2.Timestamp
    watch_state: _common_pb2.WatchState
    def __init__(self, message: _Optional[_Union[_messages_pb2.SessionMessage, _Mapping]] = ..., cursor: _Optional[str] = ..., project_id: _Optional[str] = ..., recorded_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., watch_state: _Optional[_Union[_common_pb2.WatchState, str]] = ...) -> None: ...
