/** The beginning of every AG-UI answer: the request is checked, and the watches begin. */
import { type JsonObject, parseExactObject } from "@session-ledger/agui/json";
import { actorOf } from "../auth/principal.ts";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { Timers } from "@session-ledger/base/timers";
import { refuse, checkSessionId } from "../contract/checks.ts";
import { type CallContext, reserveFor } from "../contract/context.ts";
import type { Live } from "../live/live.ts";
import type { LiveState, Watcher } from "../live/watcher.ts";
import type { Metrics } from "../observability/metrics.ts";
import { sessionNotFound } from "../store/failure.ts";
import type { Snapshot } from "./snapshot.ts";
import type { ClientMessage } from "./client-messages.ts";
import { type Cut, cutOf, isEarlier, NOTHING } from "./merging.ts";
import type { Transcripts } from "./transcripts.ts";

export interface AguiRequest {
  readonly sessionId: string;
  /** From the client's RunAgentInput: the version of the protocol that the client parses. */
  readonly protocolVersion: string | undefined;
  /** True: the answer stays open for further runs. */
  readonly follow: boolean;
  /** True: a session without a run is waited for; with `follow`, without a limit. */
  readonly canWait: boolean;
  /** `events`: every event from the beginning, as it was before it was merged into a row. */
  readonly replay: "snapshot" | "events";
  /** From the client's RunAgentInput: the messages that the client has. */
  readonly messages: readonly ClientMessage[];
  /** The number of a user message: the answer lasts until a run that has taken it has ended. */
  readonly answers: bigint | undefined;
  /** The session as it was before the next event after this one, and nothing that came later. */
  readonly upToSeq?: bigint | undefined;
}

/** True: no run has taken the row that the answer waits for. */
export function isAwaited(
  { answers }: Pick<AguiRequest, "answers">,
  { takenSeq }: { readonly takenSeq: bigint },
): boolean {
  return answers !== undefined && takenSeq < answers;
}

export interface AguiParts {
  readonly live: Live;
  readonly transcripts: Transcripts;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly metrics: Pick<Metrics, "aguiMended" | "aguiInputs" | "limitUse">;
  /** JSON text; undefined when the session has none. */
  readonly capabilitiesOf: (sessionId: string) => Promise<string | undefined>;
}

type AguiLimits = typeof AGUI_LIMITS;

export interface AguiOptions extends AguiLimits {
  /** auto: the answer waits for a session that does not exist; strict: the answer is NOT_FOUND. */
  readonly sessionPolicy: "auto" | "strict";
  /** A run without an end has stalled after this long without an event. */
  readonly runStaleAfterMs: number;
  /** The longest wait for the first run of a session, and for the run that takes a message. */
  readonly runWaitMs: number;
}

export const AGUI_LIMITS = {
  /**
   * The limit for the longest event of a snapshot, in characters; above it, a replay. Clients fail at a
   * frame of 10 MiB, which they count in characters.
   */
  snapshotLengthMax: 8 * 1024 * 1024,
  /** Replays at once: each holds the session up to its place. */
  replaysMax: 8,
  /** The limit of one replay's memory, estimated like a transcript. */
  replayBytesMax: 67_108_864,
};

/** The parts and the options, passed on as one value. */
export interface AguiSetup extends AguiParts {
  readonly options: AguiOptions;
}

export interface AttachedWatches {
  readonly events: Watcher<"events">;
  readonly messages: Watcher<"messages">;
  /** The session has every row up to this cut. */
  readonly head: Cut;
  readonly sessionExists: boolean;
  readonly stale: StaleRun;
  /** Aborts when the client left, and not when its run has stalled. */
  readonly signal: AbortSignal;
  /** Its name, by which it shares long reads; undefined: nobody asks for one. */
  readonly caller: string | undefined;
  leave(): void;
}

export interface JoinedSession {
  readonly now: Snapshot;
  /** One event, or none. */
  readonly capabilities: readonly JsonObject[];
}

/** The caller must call `leave` of the result. */
export async function attachAgui(
  setup: AguiSetup,
  { sessionId }: Pick<AguiRequest, "sessionId">,
  context: CallContext,
): Promise<AttachedWatches> {
  refuse([checkSessionId(sessionId)]);
  const stale = new StaleRun(setup);
  const signal = AbortSignal.any([context.signal, stale.signal]);
  const cachedCut = setup.transcripts.cachedCut(sessionId);
  const { events, messages } = await setup.live
    .attachBoth({ sessionId, signal, acquire: reserveFor(context) })
    .catch((error: unknown) => {
      const isDeleted = error instanceof ServiceError && error.reason === "SESSION_DELETED";
      // Another instance may have deleted the session: then no handler here has dropped it.
      if (isDeleted) setup.transcripts.drop(sessionId);
      throw error;
    });
  const leave = (): void => {
    events.leave();
    messages.leave();
  };
  const { head } = events;
  const cut = head === undefined ? NOTHING : cutOf(head);
  if (isEarlier(cut, cachedCut)) setup.transcripts.forget(sessionId);
  if (head === undefined && setup.options.sessionPolicy === "strict") {
    leave();
    throw sessionNotFound(sessionId);
  }
  return {
    events,
    messages,
    stale,
    signal: context.signal,
    caller: actorOf(context.principal),
    head: cut,
    sessionExists: head !== undefined,
    leave() {
      stale.clear();
      leave();
    },
  };
}

/** The session up to that cut or a later one, and the CUSTOM event of its capabilities. */
export async function joinAt(
  { capabilitiesOf }: AguiParts,
  sessionId: string,
  snapshot: Promise<Snapshot>,
): Promise<JoinedSession> {
  const [now, text] = await Promise.all([snapshot, capabilitiesOf(sessionId)]);
  if (text === undefined) return { now, capabilities: [] };
  const value = parseExactObject(text);
  return { now, capabilities: [{ type: "CUSTOM", name: "ambient:capabilities", value }] };
}

const MICROS_PER_MS = 1_000n;
/** Timers of Node have 31 bits; RUN_STALE_AFTER may be longer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/**
 * Detects silence in the stream of one client: the followed run has stalled, or the session has no
 * run. One timer per stream checks the newest event and is set again for the rest, so a row costs
 * no timer. Silence counts only while a row would arrive: not while the database cannot be read,
 * nor while the client stands still. After an outage it starts at zero, because the runner may
 * return later than the watch.
 */
class StaleRun {
  readonly #setup: AguiSetup;
  readonly #controller = new AbortController();
  /** The start of the silence. Undefined: no run is open, and none is waited for. */
  #newestMicros: bigint | undefined;
  #isWaiting = false;
  #isListening = false;
  /** True after the watch was degraded, or stopped being live, until it is live again. */
  #wasAway = false;
  #wasLive = false;
  #cancel: (() => void) | undefined;

  constructor(setup: AguiSetup) {
    this.#setup = setup;
  }

  /** Aborted when the run has stalled, or did not begin in time. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get outcome(): "stalled" | "no_run" | undefined {
    if (!this.signal.aborted) return undefined;
    return this.#isWaiting ? "no_run" : "stalled";
  }

  /** An event happened in the open run. A time from a clock ahead of ours counts as now. */
  onEvent(atMicros: bigint): void {
    if (this.#isWaiting) this.clear(); // The timer of the wait may be the longer one.
    this.#begin(atMicros);
  }

  /** A run is waited for. Events outside of runs do not make the wait longer. */
  startWait(): void {
    if (this.#isWaiting) return;
    this.clear(); // The timer of the run before may be the longer one.
    this.#isWaiting = true;
    this.#begin(this.#setup.clock.nowMicros());
  }

  /** No run is open, and none is waited for. */
  clear(): void {
    this.#isWaiting = false;
    this.#newestMicros = undefined;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** When the watch becomes live, the times of the rows give the age of the silence. */
  setState(state: LiveState): void {
    if (state === "live") {
      if (this.#wasAway && this.#newestMicros !== undefined)
        this.#begin(this.#setup.clock.nowMicros());
      this.#wasAway = false;
      this.#wasLive = true;
    } else if (state === "degraded" || this.#wasLive) this.#wasAway = true;
  }

  /** True: a row would arrive from now on. */
  setListening(isListening: boolean): void {
    this.#isListening = isListening;
    if (isListening && this.#leftMs() <= 0) this.#controller.abort();
  }

  #begin(atMicros: bigint): void {
    const now = this.#setup.clock.nowMicros();
    this.#newestMicros = atMicros < now ? atMicros : now;
    if (this.#cancel === undefined) this.#check();
  }

  get #limitMs(): number {
    const { runWaitMs, runStaleAfterMs } = this.#setup.options;
    return this.#isWaiting ? runWaitMs : runStaleAfterMs;
  }

  #check(): void {
    this.#cancel = undefined;
    const leftMs = this.#leftMs();
    if (leftMs <= 0 && this.#isListening) {
      this.#controller.abort();
      return;
    }
    const delayMs = Math.min(leftMs > 0 ? leftMs : this.#limitMs, TIMER_MS_MAX);
    this.#cancel = this.#setup.timers.after(delayMs, () => this.#check());
  }

  #leftMs(): number {
    if (this.#newestMicros === undefined) return this.#limitMs;
    const silentMicros = this.#setup.clock.nowMicros() - this.#newestMicros;
    return this.#limitMs - Number(silentMicros / MICROS_PER_MS);
  }
}
