"""Derives messages: a line has the payloads of a stream, and the answer its messages."""

import json
import sys

from session_ledger.derive import MessageDeriver

for line in sys.stdin.buffer:
    deriver = MessageDeriver()
    messages = [message for payload in json.loads(line) for message in deriver.next(payload)]
    shown = [[one.event_type, one.payload, one.key] for one in messages]
    print(json.dumps(shown), flush=True)
