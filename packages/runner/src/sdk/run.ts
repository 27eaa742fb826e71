/**
 * One run of an agent as a whole sequence of events: RUN_STARTED first, then those of the agent, then
 * one end. The run waits for nothing but its agent.
 *
 *   agent ends, with or without its own RUN_FINISHED ─► ENDs of open constructs, RUN_FINISHED
 *   agent throws, or sends RUN_ERROR ─────────────────► RUN_ERROR
 *   cancelled, interrupted ─┬─ agent ends in time ────► ENDs, RUN_FINISHED, outcome `cancelled`
 *                           └─ the grace is over ─────► the same, and the adapter is dropped
 *   the process stops ─► as cancelled, but ───────────► RUN_ERROR, code RUNNER_STOPPED
 */
import { type CatalogueEntry, lookup } from "@session-ledger/agui/catalogue";
import { EFFECTS, addressOf } from "@session-ledger/agui/constructs";
import { PAYLOAD_BYTES_MAX } from "@session-ledger/agui/payload";
import { printJson } from "@session-ledger/agui/print";
import { textOf } from "../failure.ts";
import {
  type AgentEvent,
  BridgeMistake,
  type RunCaller,
  type PlatformBridge,
  type PlatformContext,
  type RunInput,
} from "./bridge.ts";

/** The reason of a signal that aborts because the process stops. */
export class RunnerStopped extends Error {
  override readonly name = "AbortError";
  readonly code = "RUNNER_STOPPED";

  constructor() {
    super("the runner stopped");
  }
}

export interface AgentRun {
  readonly bridge: PlatformBridge;
  readonly input: RunInput;
  readonly platform: PlatformContext;
  /** Aborts when the run is cancelled or interrupted, and when the process stops. */
  readonly signal: AbortSignal;
  /** A part of `signal`: `interrupt` of the bridge aborts it. */
  readonly ending: AbortController;
  /** How long the agent may take to end after the signal, milliseconds. */
  readonly graceMs: number;
  readonly caller?: RunCaller | undefined;
  /** RUN_STARTED, if it is stored already. */
  readonly started?: AgentEvent;
  /** Called with a mistake in the bridge. */
  readonly onMistake?: (message: string) => void;
}

/** A payload is at most this long, and the member, such as a transcript, is only a part of it. */
export const MEMBER_BYTES_MAX = PAYLOAD_BYTES_MAX - 1_024;

/** The RUN_STARTED of a run that was not claimed; without an input that is too long to be stored. */
export function startOf(threadId: string, input: RunInput): AgentEvent {
  const { runId, parentRunId } = input;
  const parent = parentRunId === undefined ? {} : { parentRunId };
  const started = { type: "RUN_STARTED", threadId, runId, ...parent };
  try {
    const isStored = Buffer.byteLength(printJson(input).text ?? "") <= MEMBER_BYTES_MAX;
    return isStored ? { ...started, input } : started;
  } catch {
    return started;
  }
}

/** Never throws: an error of the agent is RUN_ERROR. */
export async function* eventsOfAgent(run: AgentRun): AsyncGenerator<AgentEvent, void, undefined> {
  const { bridge, input, platform, signal } = run;
  const { threadId, runId } = input;
  const open = new OpenEnds();
  yield run.started ?? { type: "RUN_STARTED", threadId, runId };
  let end: AgentEvent = { type: "RUN_FINISHED" };
  const events = new AgentEventReader(
    bridge.run(input, platform, signal, run.caller, run.ending),
    run,
  );
  try {
    for (let event = await events.next(); event !== undefined; event = await events.next()) {
      if (typeof event.type !== "string" || event.type === "")
        throw new BridgeMistake("the agent gave an event without a type");
      if (event.type === "RUN_STARTED") continue;
      if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") {
        end = event;
        break;
      }
      open.take(event);
      yield event;
    }
  } catch (error) {
    if (error instanceof BridgeMistake) run.onMistake?.(error.message);
    end = errorOf(error, bridge);
  } finally {
    events.leave(); // Also when the caller leaves the loop.
  }
  if (signal.aborted) end = endOfAborted(end, signal.reason);
  if (end.type === "RUN_ERROR") return yield { ...end, message: messageOf(end) };
  yield* open.ends();
  yield { ...end, threadId, runId };
}

/** The agent's events, up to the end of the grace. */
class AgentEventReader {
  readonly #events: AsyncGenerator<AgentEvent, void, undefined>;
  readonly #run: AgentRun;
  readonly #onAbort = (): void => this.#startGrace();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isLate = false;
  /** Ends the wait for the next event. */
  #giveUp: (() => void) | undefined;

  constructor(events: AsyncGenerator<AgentEvent, void, undefined>, run: AgentRun) {
    this.#events = events;
    this.#run = run;
    const { signal } = run;
    if (signal.aborted) this.#startGrace();
    else signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** Undefined: the events have ended, or the grace is over. */
  next(): Promise<AgentEvent | undefined> {
    return new Promise((resolve, reject) => {
      this.#giveUp = () => resolve(undefined);
      if (this.#isLate) return resolve(undefined);
      const nextOf = ({ done, value }: IteratorResult<AgentEvent, void>): void =>
        resolve(done === true ? undefined : (value ?? NO_EVENT));
      this.#events.next().then(nextOf, reject);
    });
  }

  leave(): void {
    clearTimeout(this.#timer);
    this.#run.signal.removeEventListener("abort", this.#onAbort);
    // Not awaited: an agent that hangs would hold the runner.
    void this.#events.return().catch(() => undefined);
    if (this.#isLate) this.#run.bridge.forget(this.#run.platform.sessionId);
  }

  /** The bridge asks the agent to end, by the same signal. */
  #startGrace(): void {
    this.#timer = setTimeout(() => {
      this.#isLate = true;
      this.#giveUp?.();
    }, this.#run.graceMs);
  }
}

/** Replaces a value that is no event, from an agent without types. */
const NO_EVENT: AgentEvent = { type: "" };
/** The service refuses an event that is too large, and the run would have no end. */
const MESSAGE_CHARS_MAX = 65_536;

function messageOf({ message = "the agent gave no reason" }: AgentEvent): string {
  return textOf(message).slice(0, MESSAGE_CHARS_MAX);
}

function errorOf(error: unknown, bridge: PlatformBridge): AgentEvent {
  // An interrupt by the bridge itself.
  if (error instanceof Error && error.name === "AbortError") return CANCELLED;
  return {
    type: "RUN_ERROR",
    message: [textOf(error), contextOf(bridge)].filter(Boolean).join("\n\n"),
  };
}

function contextOf(bridge: PlatformBridge): string {
  try {
    return bridge.getErrorContext();
  } catch (error) {
    return `its context cannot be read: ${textOf(error)}`;
  }
}

const CANCELLED: AgentEvent = { type: "RUN_FINISHED", outcome: { type: "cancelled" } };

/** An agent that ends with its own outcome was faster than the signal. */
function endOfAborted(end: AgentEvent, reason: unknown): AgentEvent {
  if (end.type === "RUN_FINISHED" && end["outcome"] !== undefined) return end;
  if (reason instanceof RunnerStopped) {
    return { type: "RUN_ERROR", message: reason.message, code: reason.code };
  }
  return end.type === "RUN_ERROR" ? CANCELLED : { ...end, ...CANCELLED };
}

/** The ENDs of the open messages, tool calls and steps, in the order of their START. */
class OpenEnds {
  readonly #ends = new Map<string, AgentEvent>();

  take(event: AgentEvent): void {
    const entry = lookup(event.type);
    const does = entry && EFFECTS.get(entry.type)?.does;
    if (entry === undefined || (does !== "start" && does !== "end")) return;
    const { key = "" } = addressOf(entry, event);
    if (does === "end") this.#ends.delete(`${entry.kind}:${key}`);
    else this.#ends.set(`${entry.kind}:${key}`, endOf(entry, event));
  }

  /** Later ones may be inside of earlier ones, and end first. */
  ends(): readonly AgentEvent[] {
    return [...this.#ends.values()].toReversed();
  }
}

function endOf({ type, idField }: CatalogueEntry, event: AgentEvent): AgentEvent {
  const { subagentRunId } = event;
  return {
    type: type.endsWith("_STARTED")
      ? type.replace(/STARTED$/, "FINISHED")
      : type.replace(/START$/, "END"),
    ...(subagentRunId !== undefined && { subagentRunId }),
    ...(idField !== undefined && { [idField]: event[idField] }),
  };
}
