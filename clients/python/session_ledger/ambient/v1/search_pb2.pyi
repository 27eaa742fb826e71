import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_ORDER_UNSPECIFIED: _ClassVar[SearchOrder]
    SEARCH_ORDER_BEST: _ClassVar[SearchOrder]
SEARCH_ORDER_UNSPECIFIED: SearchOrder
SEARCH_ORDER_BEST: SearchOrder

class SearchTextsRequest(_message.Message):
    __slots__ = ("query", "project_id", "session_id", "role", "event_type", "after", "before", "order_by", "page_size", "page_token", "labels", "agent_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUERY_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    query: str
    project_id: str
    session_id: str
    role: str
    event_type: str
    after: _timestamp_pb2.Timestamp
    before: _timestamp_pb2.Timestamp
    order_by: SearchOrder
    page_size: int
    page_token: str
    labels: _containers.ScalarMap[str, str]
    agent_id: str
    def __init__(self, query: _Optional[str] = ..., project_id: _Optional[str] = ..., session_id: _Optional[str] = ..., role: _Optional[str] = ..., event_type: _Optional[str] = ..., after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., order_by: _Optional[_Union[SearchOrder, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., agent_id: _Optional[str] = ...) -> None: ...

class SearchTextsResponse(_message.Message):
    __slots__ = ("items", "next_page_token", "indexed_until")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[FoundText]
    next_page_token: str
    indexed_until: _timestamp_pb2.Timestamp
    def __init__(self, items: _Optional[_Iterable[_Union[FoundText, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., indexed_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FoundText(_message.Message):
    __slots__ = ("session_id", "session_name", "project_id", "run_id", "stream", "seq", "role", "event_type", "created_at", "excerpt")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXCERPT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    session_name: str
    project_id: str
    run_id: str
    stream: str
    seq: int
    role: str
    event_type: str
    created_at: _timestamp_pb2.Timestamp
    excerpt: _containers.RepeatedCompositeFieldContainer[ExcerptPiece]
    def __init__(self, session_id: _Optional[str] = ..., session_name: _Optional[str] = ..., project_id: _Optional[str] = ..., run_id: _Optional[str] = ..., stream: _Optional[str] = ..., seq: _Optional[int] = ..., role: _Optional[str] = ..., event_type: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., excerpt: _Optional[_Iterable[_Union[ExcerptPiece, _Mapping]]] = ...) -> None: ...

class ExcerptPiece(_message.Message):
    __slots__ = ("text", "is_match")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_MATCH_FIELD_NUMBER: _ClassVar[int]
    text: str
    is_match: bool
    def __init__(self, text: _Optional[str] = ..., is_match: bool = ...) -> None: ...
