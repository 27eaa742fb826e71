"""The client of session-ledger: write a session, read it, and claim its turns."""

from session_ledger.connection import LedgerError, calls_of, connect, push
from session_ledger.reader import last_seq_of, read_events, read_messages
from session_ledger.recording import RunCancelled
from session_ledger.sender import Problem
from session_ledger.spool import Counts
from session_ledger.turns import Turn, Turns, text_of
from session_ledger.writer import SessionWriter, Stats, new_epoch

__all__ = [
    "Counts",
    "LedgerError",
    "Problem",
    "RunCancelled",
    "SessionWriter",
    "Stats",
    "Turn",
    "Turns",
    "calls_of",
    "connect",
    "last_seq_of",
    "new_epoch",
    "push",
    "read_events",
    "read_messages",
    "text_of",
]
