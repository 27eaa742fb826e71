"""The driver of the conformance suite for this client: `docs/clients.md` has the protocol."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from session_ledger import (
    LedgerError,
    Problem,
    SessionWriter,
    Stats,
    Turn,
    Turns,
    connect,
    last_seq_of,
    read_events,
    read_messages,
)

Fields = dict[str, Any]


class Driver:
    channel: grpc.Channel
    session: str
    writer: SessionWriter
    rows: Iterator[Any]
    turns: Turns
    turn: Turn

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def hello(self, command: Fields) -> Fields:
        self.channel = connect(command["address"])
        self.session = command["session"]
        self.reasons = []
        return {"features": ["writer", "messages", "replay", "reader", "turns"]}

    def writer_open(self, command: Fields) -> None:
        options = {name: command[name] for name in ("replay", "bytes_max") if name in command}
        epoch = int(command.get("epoch", 0))
        self.writer = SessionWriter(
            self.channel,
            self.session,
            epoch=epoch,
            derive=False,
            on_problem=self.told,
            **options,
        )

    def told(self, problem: Problem) -> None:
        if problem.kind == "refused":
            self.reasons.extend([problem.reason] * problem.count)

    def writer_event(self, command: Fields) -> None:
        self.writer.event(command["event"])

    def writer_message(self, command: Fields) -> None:
        self.writer.message(command["type"], command["payload"])

    def writer_flush(self, command: Fields) -> Fields:
        return self.shown(self.writer.flush(command["timeout_ms"] / 1000))

    def writer_close(self, command: Fields) -> Fields:
        return self.shown(self.writer.close(command["timeout_ms"] / 1000))

    def shown(self, stats: Stats) -> Fields:
        until = time.monotonic() + 10
        while len(self.reasons) < stats.events.refused and time.monotonic() < until:
            time.sleep(0.01)  # `on_problem` is called by another thread.
        counts = {name: getattr(stats.events, name) for name in COUNTS}
        about = {"complete": stats.complete, "state": stats.state, "epoch": str(stats.epoch)}
        return {**about, **counts, "reasons": self.reasons}

    def reader_open(self, command: Fields) -> None:
        position, follow = command["after"], command["follow"]
        if command["stream"] == "events":
            self.rows = read_events(
                self.channel, self.session, position, expand=command["expand"], follow=follow
            )
        else:
            self.rows = read_messages(self.channel, self.session, position, follow=follow)

    def reader_next(self, command: Fields) -> Fields:
        items = []
        for row in self.rows:
            last = last_seq_of(row)
            shown = {"seq": row.seq, "last_seq": last, "type": row.event_type}
            items.append({**shown, "payload": row.payload})
            if last >= command["until"]:
                return {"items": items, "ended": False}
        return {"items": items, "ended": True}

    def reader_close(self, _: Fields) -> None:
        self.rows.close()  # type: ignore[attr-defined]

    def turns_open(self, command: Fields) -> None:
        self.turns = Turns(self.channel, self.session, epoch=int(command.get("epoch", 0)))

    def turns_next(self, command: Fields) -> Fields:
        turn = self.turns.next(command["timeout_ms"] / 1000)
        if turn is None:
            return {"turn": None}
        self.turn = turn
        messages = [message.payload for message in turn.messages]
        about = {"run_id": turn.run_id, "lost_run_id": turn.lost_run_id}
        return {"turn": {**about, "messages": messages}}

    def turns_event(self, command: Fields) -> None:
        self.turn.event(command["event"])

    def turns_cancelled(self, command: Fields) -> Fields:
        cancelled = self.turn.cancelled.wait(command["timeout_ms"] / 1000)
        return {"cancelled": cancelled, "reason": self.turn.reason}

    def turns_finish(self, _: Fields) -> None:
        self.turn.finish()

    def turns_close(self, _: Fields) -> None:
        self.turns.close()


COUNTS = ("committed", "refused", "dropped", "pending")


def main() -> None:
    driver = Driver()
    for line in sys.stdin.buffer:
        command = json.loads(line)
        answered: Fields = {"id": command["id"]}
        act: Callable[[Fields], Fields | None] = getattr(driver, command["do"].replace(".", "_"))
        try:
            answered["answer"] = act(command) or {}
        except LedgerError as error:
            about = {"code": error.code.name, "reason": error.reason, "message": error.message}
            answered["error"] = about
        print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    main()
