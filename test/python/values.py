"""Events with values that JSON cannot hold: `values.py ADDRESS PREFIX`; a session is PREFIX-CASE.

A line of the output has the case, and what the writer counted and told.
"""

import json
import sys
import uuid
from collections import deque
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.alias_generators import to_camel

from session_ledger import Problem, SessionWriter, connect


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    type: str = "CUSTOM"
    name: str = "n"
    tool_value: Any = None
    left_out: Any = None


@dataclass
class Point:
    x: int
    y: object


class Throwing:
    def __str__(self) -> str:
        raise RuntimeError("of the agent")

    __repr__ = __str__


class Shown:
    def __str__(self) -> str:
        return "shown"


class Integer:
    """A number of another package, as NumPy has them."""

    def __index__(self) -> int:
        return 7


circle: dict[str, Any] = {"name": "circle"}
circle["self"] = circle
deep: Any = []
for _ in range(100_000):
    deep = [deep]
shallow: Any = 1
for _ in range(300):
    shallow = {"a": shallow}
moment = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=timezone.utc)

VALUES: dict[str, object] = {
    "nan": [float("nan"), float("inf"), 1.5],
    "datetime": [moment, datetime(2026, 1, 2), moment.astimezone(timezone(timedelta(hours=2)))],
    "date": [date(2026, 1, 2), time(3, 4)],
    "timedelta": [timedelta(days=1, hours=2, seconds=3.5), timedelta(0), timedelta(minutes=-5)],
    "uuid": uuid.UUID(int=1),
    "decimal": [Decimal("1.10"), Fraction(1, 3), 1 + 2j],
    "enum": [Colour.RED, {Colour.RED: 1}],
    "bytes": [b"text", b"\xff\x00", bytearray(b"a")],
    "set": [{1}, frozenset(), deque([2]), {"a": 1}.keys()],
    "dataclass": Point(1, Point(2, moment)),
    "model": Model(tool_value=moment),
    "secret": {"key": SecretStr("hidden")},
    "mapping": MappingProxyType({"a": 1}),
    "path": [PurePosixPath("/a/b"), ip_address("::1")],
    "object": Shown(),
    "throwing": [Throwing(), 1],
    "circle": circle,
    "deep": deep,
    "shallow": shallow,
    "keys": {(1, 2): "a", moment: "b", 3: "c", None: "d", uuid.UUID(int=2): "e", True: "f"},
    "surrogate": ["\ud83d", {"\ude00": 1}, moment],
    "integer": 10**5000,
    "big": 2**64,
}
EVENTS: dict[str, object] = {
    "model_event": Model(tool_value=[Shown(), float("nan")]),
    "circular_model": Model(tool_value=circle),
    "dataclass_event": None,
    "text_event": '{"type":"RAW","event":"\ud83d"}',
    "deep_text": '{"type":"RAW","event":' + "[" * 300 + "1.10" + "]" * 300 + "}",
}


@dataclass
class Event:
    type: str = "CUSTOM"
    name: str = "n"
    value: object = None


EVENTS["dataclass_event"] = Event(value=Shown())


def main() -> None:
    with connect(sys.argv[1]) as channel:
        for name, value in VALUES.items():
            event = {"type": "CUSTOM", "name": "n", "value": {"a": 1}, "rawEvent": {"value": value}}
            write(channel, name, event)
        for name, value in EVENTS.items():
            write(channel, name, value)
        head = '{"type":"RAW","event":"'
        for size in (4_170_000, 4_170_001):
            write(channel, f"bytes_{size}", head + "x" * (size - len(head) - 2) + '"}')
        write(channel, "message", {"text": "half \ud83d", "at": moment}, is_message=True)
        write(channel, "text_message", "half \ud83d", is_message=True)


def write(channel: Any, name: str, value: object, *, is_message: bool = False) -> None:
    problems: list[Problem] = []
    session_id = f"{sys.argv[2]}-{name}"
    with SessionWriter(channel, session_id, on_problem=problems.append) as writer:
        for _ in range(2):
            if is_message:
                writer.message("assistant", value)
            else:
                writer.event(value)
        stats = writer.flush()
    counts = stats.messages if is_message else stats.events
    told = [[one.kind, one.reason] for one in problems]
    print(json.dumps([name, counts.committed, stats.replaced_values, told]), flush=True)


main()
