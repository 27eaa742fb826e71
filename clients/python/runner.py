"""Waits for the messages of people in a session, and answers them.

    .venv/bin/python runner.py ADDRESS SESSION_ID

Kill it at any point and start it again: the new runner ends a run that was cut off.
"""

import sys
from collections.abc import Iterator

from session_ledger import LedgerError, Turn, Turns, connect


def agent(turn: Turn) -> Iterator[dict[str, str]]:
    """Here an agent would think, and look at `turn.cancelled` meanwhile."""
    text = "You said: " + "\n".join(turn.texts)
    part = {"type": "TEXT_MESSAGE_CHUNK", "messageId": turn.run_id, "role": "assistant"}
    yield {**part, "delta": text}


def main(address: str, session_id: str) -> None:
    """Ends only with an error, for example when a later runner has taken over the session."""
    with connect(address) as channel, Turns(channel, session_id) as turns:
        turns.run(agent)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [address, session_id]:
            try:
                main(address, session_id)
            except LedgerError as error:
                sys.exit(str(error))
        case _:
            sys.exit("usage: runner.py ADDRESS SESSION_ID")
