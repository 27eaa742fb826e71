"""The payloads of derived messages, for a person to read.

Half a surrogate pair becomes U+FFFD, a text that is too long is cut with a note, and JSON of an agent is
copied as it is.
"""

import json

# The service's limit of a message by default, in bytes.
PAYLOAD_BYTES_MAX = 1_048_576
_RESULT_CHARS_MAX = 2_000
# The room for the note about a cut, and the longest form of a UTF-16 unit in JSON.
_CUT_BYTES = 200
_ESCAPED_BYTES = 6
# White space of JavaScript: the service and its other clients use that.
_SPACES = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def assistant_payload(text: str) -> str:
    """Empty: there is no content."""
    if not text.strip(_SPACES):
        return ""
    shown = well_formed(text).replace("\0", "\ufffd")
    if len(shown.encode()) <= PAYLOAD_BYTES_MAX:
        return shown
    return _cut(shown, (PAYLOAD_BYTES_MAX - _CUT_BYTES) // 3)


def tool_use_payload(name: str | None, call_id: str, args: str) -> str:
    # The same name that the service gives clients for a call whose START was lost.
    tool = _quoted((name or "unknown").replace("\0", "\ufffd"))
    members = {"tool": tool, "tool_call_id": _quoted(call_id)}
    whole = _printed({**members, "input": _input_of(args)})
    if len(whole.encode()) <= PAYLOAD_BYTES_MAX:
        return whole
    room = PAYLOAD_BYTES_MAX - len(_printed(members).encode()) - _CUT_BYTES
    return _printed({**members, "input": _raw(_cut(args, room // _ESCAPED_BYTES))})


def tool_result_payload(call_id: str, content: object) -> str:
    result = _quoted(_cut(_result_text(content), _RESULT_CHARS_MAX))
    return _printed({"tool_call_id": _quoted(call_id), "result": result})


def custom_payload(name: str, value: str) -> str:
    """The value is JSON text; empty: the event has none."""
    whole = _printed({"custom_event": _quoted(name), "value": well_formed(value)})
    if len(whole.encode()) <= PAYLOAD_BYTES_MAX:
        return whole
    return _printed(
        {"custom_event": _quoted(name), "value": _quoted(_cut(value, _RESULT_CHARS_MAX))}
    )


def error_payload(message: object, code: object) -> str:
    text = "unknown error" if message is None else _shown(message)
    error = _quoted(_cut(text, PAYLOAD_BYTES_MAX // 2 // _ESCAPED_BYTES))
    return _printed({"error": error, "code": "" if code is None else _quoted(_shown(code))})


def lifecycle_payload(event: str) -> str:
    return _printed({"event": _quoted(event)})


def member_of(payload: str, name: str) -> str:
    """The text of a member of an object that was parsed, so that numbers keep their digits."""
    decoder = json.JSONDecoder()
    found, at = "", payload.index("{") + 1
    while True:
        at = _after_space(payload, at)
        if payload[at] == "}":
            return found
        key, at = decoder.raw_decode(payload, at)
        begin = _after_space(payload, at)
        _, at = decoder.raw_decode(payload, begin)
        if key == name:
            found = payload[begin:at]


def _after_space(payload: str, at: int) -> int:
    """What stands between the names and the values of an object."""
    while payload[at] in " \t\n\r,:":
        at += 1
    return at


def _input_of(text: str) -> str:
    if text == "":
        return ""
    try:
        value = json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return _raw(text)
    # The agent's own JSON: numbers keep their digits.
    own = well_formed(text.strip(" \t\n\r"))
    return own if isinstance(value, dict) else f'{{"value":{own}}}'


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _raw(text: str) -> str:
    return f'{{"raw":{_quoted(text)}}}'


def _result_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _json(content)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    """Parts that are not text are named and not shown."""
    if not isinstance(part, dict):
        return _json(part)
    if isinstance(part.get("text"), str):
        return str(part["text"])
    return f"[{part['type']}]" if isinstance(part.get("type"), str) else "[not text]"


def _printed(members: dict[str, str]) -> str:
    """Empty members are left out."""
    shown = [f'"{name}":{value}' for name, value in members.items() if value != ""]
    return "{" + ",".join(shown) + "}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _quoted(text: str) -> str:
    return _json(text)


def _json(value: object) -> str:
    return well_formed(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def well_formed(text: str) -> str:
    """Half a surrogate pair becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _cut(text: str, chars_max: int) -> str:
    """At most so many UTF-16 units, and a note about the rest."""
    if len(text) * 2 <= chars_max:
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    total = len(units) // 2
    if total <= chars_max:
        return text
    kept = units[: chars_max * 2].decode("utf-16-le", "ignore")
    length = len(kept.encode("utf-16-le")) // 2
    return f"{kept}… [cut after {length} of {total} characters]"
