/**
 * The result of a session's events: the messages, the state and the pending interrupts, as an AG-UI
 * client shows them after every event. The snapshots for joining clients, REST and the inspector
 * all use this definition.
 *
 * This is the reducer of `@ag-ui/client` 1.0.0 (`defaultApplyEvents`), compared with the original
 * at every event by test/property/agui-transcript.property.test.ts. Its time grows with the number
 * of events and not with the square of that number: messages and tool calls are found by id, text
 * is appended and never copied, and patches change the state in place. docs/ag-ui.md lists the
 * differences from 0.0.59, and from both.
 *
 * Events arrive in canonical form: chunks expanded, THINKING_* as REASONING_*. No content of an
 * event makes the reducer throw. The reducer skips an event that does not fit its type, and an
 * event of a type that changes nothing (steps, subagents, CUSTOM but for feedback, unknown types).
 */
import { isObject, type JsonObject, objectsIn } from "../json.ts";
import { FeedbackIndex } from "./feedback.ts";
import { adopted, type ListObserver, MessageList } from "./message-list.ts";
import { Allowance, Patched } from "./patched.ts";
import {
  addArguments,
  addResult,
  addText,
  applyActivityDelta,
  applyActivitySnapshot,
  applySnapshot,
  endCall,
  endText,
  Metadata,
  type Reduction,
  setEncryptedValue,
  startCall,
  startReasoning,
  startText,
} from "./reducers.ts";
import { weightOf } from "./weight.ts";

interface PatchLimits {
  /** The maximum weight of the state, or of one activity, after patches (see weight.ts). */
  readonly patchedBytesMax: number;
  /** The total cost of all patches of the session beyond their own text (see patched.ts). */
  readonly patchCostBytesMax: number;
}

/** CopilotKit's client fails on a frame over 10 MiB; a useful state is far below this. */
const LIMITS: PatchLimits = {
  patchedBytesMax: 64 * 1024 * 1024,
  patchCostBytesMax: 64 * 1024 * 1024,
};

/** Above this bound the oldest run counts as one that was answered. */
const UNANSWERED_RUNS_MAX = 1_000;
/** An entry of a set, with the id. */
const RUN_BYTES = 200;

/** The type of an event that no log has: messages leave, because a branch began before them. */
export const LEAVES = "BRANCH_LEAVES";

export class Transcript {
  readonly #reduction: Reduction;
  /** The target of patches: an empty object before the first snapshot, as for the clients. */
  #state: Patched;
  #stateIs: "none" | "set" | "too_large" = "none";
  #stateBytes = 0;
  #interrupts: readonly JsonObject[] = [];
  #interruptsBytes = 0;
  /** The run that asked them. */
  #askedBy: unknown;
  #unanswered: readonly JsonObject[] = [];
  #unansweredRuns: ReadonlySet<unknown> = new Set();
  #hasSpeech = false;
  readonly #feedback = new FeedbackIndex();

  constructor({ patchedBytesMax, patchCostBytesMax }: PatchLimits = LIMITS) {
    const allowance = new Allowance(patchCostBytesMax);
    this.#reduction = {
      list: new MessageList(),
      metadata: new Metadata(),
      patchedLimits: { bytesMax: patchedBytesMax, allowance },
    };
    this.#state = new Patched({}, this.#reduction.patchedLimits);
  }

  /**
   * The messages after the newest applied event, with the feedback on them. The next `apply` may change the returned objects,
   * so serialise or copy them before it.
   */
  messages(): readonly JsonObject[] {
    return this.#feedback.on(this.#reduction.list.toArray());
  }

  /** Whether a message with this id exists. */
  has(id: unknown): boolean {
    return this.#reduction.list.find(id) !== undefined;
  }

  /** Undefined: no event set it, or patches grew it too large. See `messages()`. */
  get state(): unknown {
    return this.#stateIs === "set" ? this.#state.value : undefined;
  }

  /** True: the state is missing because patches made it too large. */
  get isStateTooLarge(): boolean {
    return this.#stateIs === "too_large";
  }

  /** The agent's questions that the log has no answer for. */
  interrupts(): readonly JsonObject[] {
    return this.#interrupts;
  }

  /** Those that the newest end of a run has dropped: nobody waits for their answer any more. */
  get unanswered(): readonly JsonObject[] {
    return this.#unanswered;
  }

  /** The ids of the runs that asked such, as far as they are noted; a new set after each change. */
  get unansweredRuns(): ReadonlySet<unknown> {
    return this.#unansweredRuns;
  }

  /** The memory it holds, as weight.ts estimates it. */
  get bytes(): number {
    const { list } = this.#reduction;
    const runsBytes = this.#unansweredRuns.size * RUN_BYTES;
    return list.bytes + this.#stateBytes + this.#interruptsBytes + this.#feedback.bytes + runsBytes;
  }

  /**
   * Adds messages without an event, unless a message has their id. The agent's messages stay until
   * the first event with speech, because later events have the same texts.
   */
  say(messages: readonly JsonObject[], by: "person" | "agent"): void {
    const { list } = this.#reduction;
    for (const message of messages) {
      if (list.find(message["id"]) !== undefined) continue;
      const isResult = message["role"] === "tool";
      const caller = isResult ? list.findAssistantCall(message["toolCallId"]) : undefined;
      const own = adopted(message);
      const entry = caller === undefined ? list.push(own) : list.insertResult(caller.owner, own);
      entry.by = by;
    }
  }

  /** For a reader who keeps more than the newest messages. */
  observe(observer: ListObserver): void {
    this.#reduction.list.observer = observer;
  }

  /** Keeps parts of the event, and changes no part of it. */
  apply(event: JsonObject): void {
    if (!this.#hasSpeech && isSpeech(event)) {
      this.#hasSpeech = true;
      this.#reduction.list.dropAgentsRows();
    }
    switch (event["type"]) {
      case "RUN_STARTED":
        return this.#startRun(event);
      case "RUN_FINISHED":
        return this.#finishRun(event);
      case "STATE_SNAPSHOT":
        return this.#setState(event);
      case "STATE_DELTA":
        return this.#patchState(event);
      case LEAVES:
        return this.#leave(event);
      case "MESSAGES_SNAPSHOT":
        return applySnapshot(this.#reduction.list, event);
      case "CUSTOM":
        return this.#feedback.take(event);
      default:
        return applyToMessages(this.#reduction, event);
    }
  }

  #startRun(event: JsonObject): void {
    // Answered interrupts keep their weight until the run ends.
    this.#interrupts = pendingAfter(this.#interrupts, event);
    const { input } = event;
    if (!isObject(input) || !Array.isArray(input["messages"])) return;
    const { list } = this.#reduction;
    for (const message of input["messages"].filter(isObject)) {
      if (list.find(message["id"]) === undefined) list.push(adopted(message));
    }
  }

  #finishRun(event: JsonObject): void {
    const pending = pendingAfter(this.#interrupts, event);
    const asked = new Set(pending.map(({ id }) => id));
    this.#unanswered = this.#interrupts.filter(({ id }) => !asked.has(id));
    if (this.#unanswered.length > 0) {
      const runs = [...this.#unansweredRuns, this.#askedBy];
      this.#unansweredRuns = new Set(runs.slice(-UNANSWERED_RUNS_MAX));
    }
    this.#askedBy = event["runId"];
    this.#interrupts = pending;
    this.#interruptsBytes = weightOf(pending).bytes;
  }

  #leave({ ids, messages }: JsonObject): void {
    const { list } = this.#reduction;
    for (const id of Array.isArray(ids) ? ids : []) {
      const entry = list.find(id);
      if (entry !== undefined) list.remove(entry);
    }
    this.say(objectsIn(messages), "person");
    // Nobody waits for the questions of a branch that was left.
    this.#interrupts = [];
    this.#interruptsBytes = 0;
  }

  #setState({ snapshot }: JsonObject): void {
    if (snapshot === undefined) return;
    this.#state = new Patched(snapshot, this.#reduction.patchedLimits);
    this.#stateBytes = weightOf(snapshot).bytes;
    this.#stateIs = "set";
  }

  #patchState({ delta }: JsonObject): void {
    if (this.#stateIs === "too_large") return;
    const outcome = this.#state.apply(delta);
    if (outcome === "applied") {
      this.#stateIs = "set";
      this.#stateBytes = this.#state.bytes ?? 0;
    }
    if (outcome !== "too_large") return;
    this.#stateBytes = 0;
    this.#state = new Patched({}, this.#reduction.patchedLimits);
    this.#stateIs = "too_large";
  }
}

const SPEECH = /^(RUN_STARTED|MESSAGES_SNAPSHOT|(TEXT|TOOL|REASONING|ACTIVITY)_\w+)$/;

/** An event of a run, or of the conversation: not state, and not only for programs. */
export function isSpeech({ type }: JsonObject): boolean {
  return typeof type === "string" && SPEECH.test(type);
}

function applyToMessages(reduction: Reduction, event: JsonObject): void {
  switch (event["type"]) {
    case "TEXT_MESSAGE_START":
      return startText(reduction, event);
    case "REASONING_MESSAGE_START":
      return startReasoning(reduction, event);
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return addText(reduction, event);
    case "TEXT_MESSAGE_END":
    case "REASONING_MESSAGE_END":
      return endText(reduction, event);
    case "TOOL_CALL_START":
      return startCall(reduction, event);
    case "TOOL_CALL_ARGS":
      return addArguments(reduction, event);
    case "TOOL_CALL_END":
      return endCall(reduction, event);
    case "TOOL_CALL_RESULT":
      return addResult(reduction, event);
    case "REASONING_ENCRYPTED_VALUE":
      return setEncryptedValue(reduction, event);
    case "ACTIVITY_SNAPSHOT":
      return applyActivitySnapshot(reduction, event);
    case "ACTIVITY_DELTA":
      return applyActivityDelta(reduction, event);
    default:
  }
}

type Interrupts = readonly JsonObject[];

/** The interrupts that wait for an answer after the event. */
export function pendingAfter(pending: Interrupts, event: JsonObject): Interrupts {
  if (event["type"] === "RUN_STARTED") return afterRunStarted(pending, event);
  return event["type"] === "RUN_FINISHED" ? afterRunFinished(event) : pending;
}

function afterRunStarted(pending: Interrupts, { input }: JsonObject): Interrupts {
  if (pending.length === 0 || !isObject(input) || !Array.isArray(input["resume"])) return pending;
  const answered = new Set(input["resume"].filter(isObject).map(({ interruptId }) => interruptId));
  return pending.filter(({ id }) => !answered.has(id));
}

/**
 * The interrupts that the agent waits for. As for the AG-UI clients, every RUN_FINISHED sets them,
 * and a failed run leaves them. Unlike for the clients, one that a later run answers
 * (`RUN_STARTED.input.resume`) is not pending: a reader of the log alone would ask again.
 */
function afterRunFinished({ outcome }: JsonObject): Interrupts {
  return interruptsOf(outcome).map((interrupt) => {
    const { subagentRunId, ...rest } = interrupt;
    return subagentRunId === null ? rest : interrupt;
  });
}

/**
 * The end of a run for a replay: interrupts that are not in `pending` are removed. Without any left
 * the outcome is removed too, which means success. The same event when nothing changes.
 */
export function withoutAnswered(end: JsonObject, pending: Interrupts): JsonObject {
  const { outcome, ...rest } = end;
  const asked = interruptsOf(outcome);
  if (end["type"] !== "RUN_FINISHED" || !isObject(outcome) || asked.length === 0) return end;
  const open = new Set(pending.map(({ id }) => id));
  const left = asked.filter(({ id }) => open.has(id));
  if (left.length === asked.length) return end;
  return left.length === 0 ? rest : { ...end, outcome: { ...outcome, interrupts: left } };
}

function interruptsOf(outcome: unknown): Interrupts {
  if (!isObject(outcome) || outcome["type"] !== "interrupt") return [];
  return objectsIn(outcome["interrupts"]);
}
