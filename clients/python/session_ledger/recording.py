"""AG-UI events from the callbacks of a framework: each message and tool call is begun and ended once."""

import threading
import uuid

from session_ledger.printing import value_json
from session_ledger.turns import Turn
from session_ledger.writer import SessionWriter


class RunCancelled(Exception):
    """Somebody has cancelled the run. It is raised into the framework, which ends the agent."""


class Recorder:
    """Writes the events of one run at a time. For any thread; only `check` raises into the agent.

    With a SessionWriter it also writes the start and the end of runs. A Turn has both already.
    """

    def __init__(self, target: SessionWriter | Turn) -> None:
        self.target = target
        self._owns_runs = isinstance(target, SessionWriter)
        self._lock = threading.RLock()
        self._run: dict[str, str] = {}
        # What is open, by its id: the kind, and the run of the framework that it belongs to.
        self._open: dict[str, tuple[str, str]] = {}
        # Steps have no id: the number of open steps with one name.
        self._steps: dict[str, int] = {}

    @property
    def is_cancelled(self) -> bool:
        if isinstance(self.target, SessionWriter):
            return self.target.is_cancelled(self._run.get("runId", ""))
        return self.target.cancelled.is_set()

    def check(self) -> None:
        """Where work begins, or goes on. A framework in Python has no other way to be stopped."""
        if self.is_cancelled:
            raise RunCancelled("the run was cancelled")

    def event(self, **event: object) -> None:
        self.target.event({name: value for name, value in event.items() if value is not None})

    def user_message(self, text: str, key: str) -> None:
        """What a person said; a Turn has its messages already."""
        if isinstance(self.target, SessionWriter):
            self.target.message("user", text, key=key)

    def run_started(self, thread_id: str, run_id: str) -> None:
        with self._lock:
            self._run = {"threadId": thread_id, "runId": run_id}
            if self._owns_runs:
                self.event(type="RUN_STARTED", **self._run)

    def run_finished(self, outcome: dict[str, object], result: object = None) -> None:
        with self._lock:
            self._end_all()
            if self.is_cancelled:
                outcome = {"type": "cancelled"}
            if self._owns_runs:
                self.event(type="RUN_FINISHED", **self._run, outcome=outcome, result=result)

    def run_failed(self, error: BaseException) -> None:
        """The framework of a cancelled run fails with RunCancelled."""
        if self.is_cancelled:
            return self.run_finished({"type": "cancelled"})
        with self._lock:
            self._end_all()
            if self._owns_runs:
                self.event(type="RUN_ERROR", message=str(error) or type(error).__name__)

    def step_started(self, name: str) -> None:
        """Steps of one name at the same time are one step."""
        with self._lock:
            self._steps[name] = self._steps.get(name, 0) + 1
            if self._steps[name] == 1:
                self.event(type="STEP_STARTED", stepName=name)

    def step_finished(self, name: str) -> None:
        with self._lock:
            count = self._steps.pop(name, 0)
            if count > 1:
                self._steps[name] = count - 1
            elif count == 1:
                self.event(type="STEP_FINISHED", stepName=name)

    def text(self, own_id: str, delta: str, owner: str = "") -> None:
        """A piece of an assistant message."""
        with self._lock:
            if delta and own_id not in self._open:
                self._open[own_id] = ("text", owner)
                self.event(type="TEXT_MESSAGE_START", messageId=own_id, role="assistant")
            if delta:
                self.event(type="TEXT_MESSAGE_CONTENT", messageId=own_id, delta=delta)

    def reasoning(self, own_id: str, delta: str, owner: str = "") -> None:
        with self._lock:
            if delta and own_id not in self._open:
                self._open[own_id] = ("reasoning", owner)
                self.event(type="REASONING_START", messageId=own_id)
                self.event(type="REASONING_MESSAGE_START", messageId=own_id, role="reasoning")
            if delta:
                self.event(type="REASONING_MESSAGE_CONTENT", messageId=own_id, delta=delta)

    def tool_call(
        self, call_id: str, name: str, delta: str, *, parent: str | None = None, owner: str = ""
    ) -> None:
        """A piece of the arguments of a call."""
        with self._lock:
            if call_id not in self._open:
                self._open[call_id] = ("tool", owner)
                about = {"toolCallName": name, "parentMessageId": parent}
                self.event(type="TOOL_CALL_START", toolCallId=call_id, **about)
            if delta:
                self.event(type="TOOL_CALL_ARGS", toolCallId=call_id, delta=delta)

    def tool_result(self, call_id: str, content: str) -> None:
        with self._lock:
            self.end(call_id)
            about = {"messageId": str(uuid.uuid4()), "role": "tool"}
            self.event(type="TOOL_CALL_RESULT", toolCallId=call_id, content=content, **about)

    def end(self, own_id: str) -> None:
        """Nothing happens if it is not open."""
        with self._lock:
            kind, _ = self._open.pop(own_id, ("", ""))
            if kind == "text":
                self.event(type="TEXT_MESSAGE_END", messageId=own_id)
            elif kind == "reasoning":
                self.event(type="REASONING_MESSAGE_END", messageId=own_id)
                self.event(type="REASONING_END", messageId=own_id)
            elif kind == "tool":
                self.event(type="TOOL_CALL_END", toolCallId=own_id)

    def end_of(self, owner: str) -> None:
        """All that a run of the framework has open."""
        with self._lock:
            for own_id in [one for one, (_, of) in self._open.items() if of == owner]:
                self.end(own_id)

    def _end_all(self) -> None:
        for own_id in list(self._open):
            self.end(own_id)
        for name in list(self._steps):
            self._steps[name] = 1
            self.step_finished(name)


def shown(content: object) -> str:
    """The result of a tool as text."""
    return content if isinstance(content, str) else value_json(content)
