"""JSON of any value of an agent: one value that JSON cannot hold costs itself, and never the record.

The plain encoder is tried first. Where it fails, values are printed as Pydantic prints them: NaN is null,
dates and times are ISO 8601, a dataclass or a model is an object, a set is a list, bytes and everything
else are text. A circle, an error of the value's own code and what is nested too deep become a short text.
"""

import base64
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from math import isfinite
from numbers import Integral, Rational, Real
from typing import Any

# The service's limit of objects and lists in each other.
_LEVELS_MAX = 64
_BRACKETS = b"[]{}"
_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_HALVES = re.compile("[\ud800-\udfff]")


def event_json(value: object, replaced: Counter[str], *, chars_max: int) -> str:
    """An object, a model, a dataclass, or JSON text. Raises what is no event at all, or too long.

    `replaced` counts the values that were printed in another way, by their kind.
    """
    if isinstance(value, str):
        return _within_depth(_escaped(value), replaced)
    if not isinstance(value, dict) and not isinstance(value, Mapping) and not _is_record(value):
        raise TypeError(f"an event is an object or a text, not {type(value).__name__}")
    return _printed(value, replaced, chars_max)


def value_json(value: object) -> str:
    """Any value."""
    return _printed(value, Counter(), 64 * 1024 * 1024)


def _printed(value: object, replaced: Counter[str], chars_max: int) -> str:
    try:
        dump = None if isinstance(value, dict) else getattr(value, "model_dump_json", None)
        if callable(dump):  # A model of Pydantic, as those of ag_ui.core.
            return _within_depth(_escaped(str(dump(by_alias=True, exclude_none=True))), replaced)
        text = _dumped(value)
        if not _has_too_many_levels(value, text):
            return _escaped(text)
    except Exception:  # Whatever the agent's object raises.
        replaced.clear()
    return _escaped(_dumped(_Plain(replaced, chars_max).of(value)))


# `json.dumps` with these options makes one each time.
_dumped = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _escaped(text: str) -> str:
    """Half a surrogate pair is no text, but its escape is JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    return text


def _within_depth(text: str, replaced: Counter[str]) -> str:
    """What is nested too deep becomes a short text."""
    if not _is_deep(text):
        return text
    kept: list[str] = []
    level = begin = end = 0
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign in "[{":
            level += 1
            if level == _LEVELS_MAX + 1:
                begin = token.start()
        elif sign in "]}":
            if level == _LEVELS_MAX + 1:
                kept.append(text[end:begin])
                kept.append('"[…]"' if sign == "]" else '"{…}"')
                end = token.end()
                replaced["depth"] += 1
            level -= 1
    return "".join(kept) + text[end:]


def _has_too_many_levels(value: object, text: str) -> bool:
    """Of a value that the plain encoder has printed. Faster than a look at the whole text."""
    if text.count("[") + text.count("{") <= _LEVELS_MAX:
        return False
    level: list[Any] = [value]
    for _ in range(_LEVELS_MAX):
        level = [
            member
            for one in level
            for member in (one.values() if isinstance(one, dict) else one)
            if isinstance(member, (dict, list, tuple))
        ]
        if not level:
            break
    return bool(level)


def _is_deep(text: str) -> bool:
    """Whole passes over the text: a loop in Python would take longer than the printing."""
    if text.count("[") + text.count("{") <= _LEVELS_MAX:
        return False
    outside = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    signs = "".join(outside).encode("ascii", "ignore").translate(None, _NOT_BRACKETS)
    pairs = signs.replace(b"{", b"[").replace(b"}", b"]")
    for _ in range(_LEVELS_MAX):
        if not pairs:
            return False
        pairs = pairs.replace(b"[]", b"")
    return bool(pairs)


class _Plain:
    """Makes a value of what JSON has. With a limit, because a value may have itself in many places."""

    def __init__(self, replaced: Counter[str], chars_max: int) -> None:
        self._replaced = replaced
        self._chars_max = chars_max
        self._chars = 0
        self._around: set[int] = set()

    def of(self, value: object) -> Any:
        self._count(1)
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Enum):
            return self._as(value, self.of(value.value))
        if isinstance(value, str):
            self._count(len(value))
            return str.__str__(value)
        if isinstance(value, (int, float, Real)):
            return self._number(value)
        for kinds, plain in _TEXTS:
            if isinstance(value, kinds):
                return self._as(value, plain(value))
        if isinstance(value, Mapping) or _is_record(value):
            return self._inside(value, self._object, "{…}")
        if isinstance(value, (list, tuple)):
            return self._inside(value, self._list, "[…]")
        if isinstance(value, (set, frozenset, deque)) or _is_view(value):
            return self._as(value, self._inside(value, self._list, "[…]"))
        return self._as(value, self._text(value))

    def _number(self, value: Any) -> Any:
        if isinstance(value, Integral):
            number = int(value)
            # Python prints no longer ones.
            return number if number.bit_length() < 14_000 else self._as(value, hex(number))
        if isinstance(value, Rational):
            return self._as(value, str(value))
        real = float(value)
        if isfinite(real):
            return real
        self._replaced["NaN"] += 1
        return None

    def _inside(self, value: Any, make: Callable[[Any], Any], deep: str) -> Any:
        if id(value) in self._around:
            self._replaced["circular"] += 1
            return "[circular]"
        if len(self._around) == _LEVELS_MAX:
            self._replaced["depth"] += 1
            return deep
        self._around.add(id(value))
        try:
            return make(value)
        except _TooLong:
            raise
        except Exception:
            if len(self._around) == 1:
                raise
            return self._failed()
        finally:
            self._around.discard(id(value))

    def _list(self, value: Iterable[object]) -> list[Any]:
        return [self.of(member) for member in value]

    def _object(self, value: Any) -> dict[Any, Any]:
        if isinstance(value, Mapping):
            return {self._key(key): self.of(member) for key, member in value.items()}
        # Only an event is printed without its empty members.
        whole = len(self._around) > 1
        if whole:
            self._replaced[type(value).__name__] += 1
        members = _members(value)
        return {key: self.of(member) for key, member in members if whole or member is not None}

    def _key(self, key: object) -> Any:
        if key is None or (isinstance(key, (bool, int, str)) and not isinstance(key, Enum)):
            self._count(len(key) if isinstance(key, str) else 1)
            return key
        plain = self.of(key)
        return plain if isinstance(plain, (str, int)) else self._as(key, self._text(key))

    def _text(self, value: object) -> str:
        try:
            text = str(value)
        except Exception:
            return self._failed()
        self._count(len(text))
        return text

    def _failed(self) -> str:
        self._replaced["raises"] += 1
        return "[cannot be printed]"

    def _as(self, value: object, plain: Any) -> Any:
        self._replaced[type(value).__name__] += 1
        return plain

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > self._chars_max:
            raise _TooLong(f"a payload has at most {self._chars_max} bytes")


class _TooLong(ValueError):
    pass


def _is_record(value: object) -> bool:
    """A model of Pydantic, or a dataclass."""
    kind = type(value)
    return hasattr(kind, "model_fields") or is_dataclass(kind)


def _is_view(value: object) -> bool:
    return isinstance(value, (type({}.keys()), type({}.values()), type({}.items())))


def _members(value: Any) -> Iterable[tuple[str, object]]:
    with suppress(Exception):  # With the model's own serializers; a circle in it raises.
        return list(value.model_dump(by_alias=True, warnings=False).items())
    declared = getattr(type(value), "model_fields", None)
    if declared is None:
        return [(one.name, getattr(value, one.name)) for one in fields(value)]
    named = [
        (one.serialization_alias or one.alias or name, getattr(value, name))
        for name, one in declared.items()
        if not one.exclude
    ]
    return [*named, *(getattr(value, "model_extra", None) or {}).items()]


def _iso(value: date | time) -> str:
    text = value.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def _duration(value: timedelta) -> str:
    """ISO 8601, as Pydantic prints it."""
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    exact = f"{seconds}.{value.microseconds:06d}".rstrip("0").rstrip(".")
    parts = [(hours, f"{hours}H"), (minutes, f"{minutes}M"), (float(exact), f"{exact}S")]
    clock = "".join(text for number, text in parts if number)
    days = f"{value.days}D" if value.days else ""
    return f"{sign}P{days}T{clock}" if clock else f"{sign}P{days or 'T0S'}"


def _bytes(value: Any) -> str:
    content = bytes(value)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return base64.urlsafe_b64encode(content).decode()


_TEXTS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    ((datetime, date, time), _iso),
    (timedelta, _duration),
    ((bytes, bytearray, memoryview), _bytes),
)
