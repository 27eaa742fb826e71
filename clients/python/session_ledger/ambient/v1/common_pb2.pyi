import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_TYPE_UNSPECIFIED: _ClassVar[EventType]
    EVENT_TYPE_CREATED: _ClassVar[EventType]
    EVENT_TYPE_UPDATED: _ClassVar[EventType]
    EVENT_TYPE_DELETED: _ClassVar[EventType]

class WatchState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WATCH_STATE_UNSPECIFIED: _ClassVar[WatchState]
    WATCH_STATE_CATCHING_UP: _ClassVar[WatchState]
    WATCH_STATE_LIVE: _ClassVar[WatchState]
    WATCH_STATE_DEGRADED: _ClassVar[WatchState]
EVENT_TYPE_UNSPECIFIED: EventType
EVENT_TYPE_CREATED: EventType
EVENT_TYPE_UPDATED: EventType
EVENT_TYPE_DELETED: EventType
WATCH_STATE_UNSPECIFIED: WatchState
WATCH_STATE_CATCHING_UP: WatchState
WATCH_STATE_LIVE: WatchState
WATCH_STATE_DEGRADED: WatchState

class ObjectReference(_message.Message):
    __slots__ = ("id", "created_at", "updated_at", "kind", "href")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HREF_FIELD_NUMBER: _ClassVar[int]
    id: str
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    kind: str
    href: str
    def __init__(self, id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., href: _Optional[str] = ...) -> None: ...

class ListMeta(_message.Message):
    __slots__ = ("page", "size", "total", "total_is_lower_bound")
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TOTAL_IS_LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    page: int
    size: int
    total: int
    total_is_lower_bound: bool
    def __init__(self, page: _Optional[int] = ..., size: _Optional[int] = ..., total: _Optional[int] = ..., total_is_lower_bound: bool = ...) -> None: ...
