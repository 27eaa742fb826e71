"""Claims the waiting messages of a session, turn by turn, and hears cancels."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from session_ledger.ambient.v1.messages_pb2 import SessionMessage
from session_ledger.ambient.v1.turns_pb2 import ClaimTurnRequest, ClaimTurnResponse
from session_ledger.connection import Retries, calls_of, failure_of
from session_ledger.sender import Problem
from session_ledger.writer import SessionWriter, new_epoch

_WAIT_MAX_S = 60
# What a claim may take after its wait.
_ANSWER_S = 10
_FLUSH_S = 60


class Turn:
    """The messages that were claimed, and the run that answers them."""

    def __init__(self, turns: "Turns", claimed: ClaimTurnResponse) -> None:
        started: dict[str, Any] = json.loads(claimed.run_started.payload)
        self._turns = turns
        self.run_id = str(started["runId"])
        self.thread_id = str(started["threadId"])
        self.messages: list[SessionMessage] = list(claimed.messages)
        self.lost_run_id = claimed.lost_run_id
        """The run of a lost runner, which this claim has ended; empty: none."""
        self.cancelled = threading.Event()
        """Set when the run has to end: it was cancelled, or the writer has ended."""
        self.reason = ""
        """Why: the text of the caller who cancelled the run, or the writer's failure."""
        self.is_over = False

    @property
    def session_id(self) -> str:
        return self._turns.writer.session_id

    @property
    def texts(self) -> list[str]:
        """What the people typed: each text as it came, without files."""
        contents = [message["content"] for message in self.user_messages]
        return [text for content in contents for text in _texts_in(content)]

    @property
    def user_messages(self) -> list[dict[str, Any]]:
        """The messages of the people in the form of AG-UI, with their files: `id`, `role`, `content`.

        The content is a text, or the list of parts as the client sent it.
        """
        return [message for row in self.messages for message in _typed_in(row)]

    def event(self, event: object) -> None:
        """One AG-UI event of the run. RUN_STARTED is stored already. Never raises, never waits."""
        self._turns.writer.event(event)

    def message(self, event_type: str, payload: object) -> None:
        """One message for people, beside those derived from the events. Never raises, never waits."""
        self._turns.writer.message(event_type, payload)

    def finish(self, result: object = None) -> None:
        """Ends the run, as cancelled if it was, and waits until that is stored.

        Raises a LedgerError if another runner took over.
        """
        outcome = {"type": "cancelled" if self.cancelled.is_set() else "success"}
        end = {"type": "RUN_FINISHED", "threadId": self.thread_id, "runId": self.run_id}
        given = {} if result is None else {"result": result}
        self._end({**end, "outcome": outcome, **given})

    def fail(self, message: str, code: str = "") -> None:
        """Ends the run with RUN_ERROR, and waits until that is stored."""
        given = {"code": code} if code else {}
        self._end({"type": "RUN_ERROR", "message": message, **given})

    def _end(self, event: dict[str, object]) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.event(event)
        self._turns.ended(self)


class Turns:
    """The turns of a session, one at a time:

        with connect(address) as channel, Turns(channel, "s1") as turns:
            turns.run(agent)

    epoch: the runner's generation; by default from the time, so that a later runner takes over the
        run of a lost one. A runner that was replaced gets a LedgerError, STALE_EPOCH.
    redeliver: messages of a lost run come again if nothing answered them.
    messages_max: the most messages of a turn; 0: the service's default.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        session_id: str,
        *,
        epoch: int = 0,
        redeliver: bool = True,
        messages_max: int = 0,
        on_problem: Callable[[Problem], object] | None = None,
    ) -> None:
        self._channel = channel
        self._ledger = calls_of(channel)
        self._session_id = session_id
        self._redeliver = redeliver
        self._messages_max = messages_max
        self._on_problem = on_problem
        self._turn: Turn | None = None
        # The claim that waits; guarded by the lock, like `_is_stopped`.
        self._call: Any = None
        self._is_stopped = False
        self._lock = threading.Lock()
        # Runs of this runner that were cancelled, and the reason. The service may say so before the
        # answer to the claim is read.
        self._cancels: dict[str, str] = {}
        self.writer = self._new_writer(epoch or new_epoch())

    def __enter__(self) -> "Turns":
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._turn is not None and not self._turn.is_over and error is not None:
            self._turn.is_over = True
            self._turn.event({"type": "RUN_ERROR", "message": str(error) or type(error).__name__})
        self.close()

    def __iter__(self) -> Iterator[Turn]:
        """Every turn, until `stop`. A turn that is not finished when the next one is asked for ends."""
        while not self._is_stopped:
            turn = self.next()
            if turn is not None:
                yield turn

    def run(self, agent: Callable[[Turn], Iterable[object] | None]) -> None:
        """Answers every turn with the events of the agent. Its exceptions become RUN_ERROR, but those
        after a cancel: an agent may raise to end its run.

        The events of a run end after a cancel. Look at `turn.cancelled` in long work.
        """
        for turn in self:
            try:
                for event in agent(turn) or ():
                    turn.event(event)
                    if turn.cancelled.is_set():
                        break
            except Exception as error:
                if turn.cancelled.is_set():
                    turn.finish()
                else:
                    turn.fail(str(error) or type(error).__name__)
            else:
                turn.finish()

    def next(self, timeout_s: float | None = None) -> Turn | None:
        """Waits for messages and claims them. None: none came in this time, or `stop` was called."""
        if self._turn is not None:
            self._turn.finish()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_stopped:
            wait_s = float(_WAIT_MAX_S)
            if until is not None:
                wait_s = max(0.0, min(wait_s, until - time.monotonic()))
            claimed = self._claim(wait_s)
            if claimed is not None and claimed.HasField("run_started"):
                return self._begin(claimed)
            if until is not None and time.monotonic() >= until:
                return None
        return None

    def stop(self) -> None:
        """Ends the wait for messages, from any thread or signal handler. The open turn goes on."""
        self._is_stopped = True
        call = self._call
        if call is not None:
            call.cancel()

    def close(self, timeout_s: float = 10) -> None:
        """Stops, and waits until all is stored."""
        self.stop()
        self.writer.close(timeout_s)

    def ended(self, turn: Turn) -> None:
        """Waits until the end of a turn is stored."""
        self._turn = None
        stats = self.writer.flush(_FLUSH_S)
        while stats.state == "open" and not stats.complete:
            stats = self.writer.flush(_FLUSH_S)
        failure = self.writer.failure
        if failure is None:
            return
        if turn.run_id not in self._cancels:
            raise failure
        # The agent needed longer than CANCEL_GRACE, so the service has ended the run.
        self.writer.close(0)
        self.writer = self._new_writer(new_epoch())

    def _new_writer(self, epoch: int) -> SessionWriter:
        return SessionWriter(
            self._channel,
            self._session_id,
            epoch=epoch,
            lifecycle_messages=False,
            on_cancel=self._cancelled,
            on_problem=self._told,
        )

    def _claim(self, wait_s: float) -> ClaimTurnResponse | None:
        request = ClaimTurnRequest(
            session_id=self._session_id,
            producer_epoch=self.writer.epoch,
            redeliver=self._redeliver,
            messages_max=self._messages_max,
            run_started=json.dumps({"runId": str(uuid.uuid4())}),
        )
        # Zero would be an error if nothing waits.
        request.wait.FromMilliseconds(max(1, int(wait_s * 1_000)))
        retries = Retries(None)
        while True:
            try:
                self._call = self._ledger.ClaimTurn.future(request, timeout=wait_s + _ANSWER_S)
                if self._is_stopped:
                    self._call.cancel()
                answer: ClaimTurnResponse = self._call.result()
                return answer
            except grpc.FutureCancelledError:
                return None
            except grpc.RpcError as error:
                failure = failure_of(error)
            finally:
                self._call = None
            if not failure.may_pass:
                raise failure
            # The same run again: if the first claim was heard, its answer comes again.
            time.sleep(retries.pause_s(failure))

    def _begin(self, claimed: ClaimTurnResponse) -> Turn:
        self._turn = turn = Turn(self, claimed)
        with self._lock:
            self._cancels = {run: why for run, why in self._cancels.items() if run == turn.run_id}
            if turn.run_id in self._cancels:
                turn.reason = self._cancels[turn.run_id]
                turn.cancelled.set()
        self.writer.listen(turn.run_id)
        return turn

    def _cancelled(self, run_id: str, reason: str) -> None:
        with self._lock:
            self._cancels[run_id] = reason
            if self._turn is not None and self._turn.run_id == run_id:
                self._turn.reason = reason
                self._turn.cancelled.set()

    def _told(self, problem: Problem) -> None:
        if problem.kind in ("fenced", "ended"):
            turn = self._turn
            if turn is not None and not turn.cancelled.is_set():
                turn.reason = problem.message
                turn.cancelled.set()
        if self._on_problem is not None:
            self._on_problem(problem)


def text_of(payload: str) -> str:
    """For people to read: the text of a message of a person, in any of the forms that a payload has.

    A message that was typed over AG-UI is a RunAgentInput: its texts, one a line, without files.
    """
    match _object_in(payload):
        case {"messages": [*messages]}:
            contents = [one.get("content") for one in messages if isinstance(one, dict)]
            return "\n".join(text for content in contents for text in _texts_in(content))
        case {"text": str(text)}:
            return text
    return payload


def _typed_in(row: SessionMessage) -> list[dict[str, Any]]:
    """The messages of people at the end of a RunAgentInput, or one of a text."""
    match _object_in(row.payload):
        case {"messages": [*listed]}:
            messages = [one for one in listed if isinstance(one, dict)]
            first = 0
            for at, one in enumerate(messages):
                if one.get("role") not in ("user", "tool"):
                    first = at + 1
            # A message without an id has one made of its row's, also when others take it.
            ids = [row.id, *(f"{row.id}-{at}" for at in range(1, len(messages) + 1))]
            fresh = zip(messages[first:], ids, strict=False)
            named = [{**one, "id": one.get("id") or made} for one, made in fresh]
            return [{"content": "", **one} for one in named if one.get("role") == "user"]
    return [{"id": row.id, "role": "user", "content": text_of(row.payload)}]


def _object_in(payload: str) -> object:
    if not payload.lstrip().startswith("{"):
        return None
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _texts_in(content: object) -> list[str]:
    match content:
        case str(text):
            return [text]
        case [*parts]:
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            return [text for text in texts if isinstance(text, str)]
    return []
