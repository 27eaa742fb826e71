/**
 * Turns one event of the log into the frames for one client. Events outside of runs are withheld,
 * because clients accept no events between runs; when the next run begins, the client lacks them.
 */
import type { JsonObject } from "../agui/json.ts";
import type { Standing } from "../live/watcher.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Canonical } from "./canonical/canonical.ts";
import type { CanonicalEvent, LoggedEvent } from "./canonical/event.ts";
import { type Generation, servedTo } from "./generation/served.ts";

interface Relayed {
  readonly frames: readonly AguiFrame[];
  /** A run began, and some events before it were withheld from the client. */
  readonly lacks: boolean;
}

interface RelayParts {
  readonly canonical: Canonical;
  readonly generation: Generation;
  readonly metrics: Pick<Metrics, "aguiMended">;
  /** Gets every event, and returns the event to send. */
  readonly onEvent?: (event: CanonicalEvent) => CanonicalEvent;
  /** Makes frames that replace the withheld events; without it the caller must. */
  readonly makeUp?: (seq: bigint) => readonly AguiFrame[];
}

export class Relay {
  #parts: RelayParts;
  #withheld: boolean;
  #hasFailed = false;

  constructor(parts: RelayParts, options: { readonly withheld: boolean }) {
    this.#parts = parts;
    this.#withheld = options.withheld;
  }

  /** From here on `onEvent` is not called, and the caller makes up for withheld events. */
  goLive(): void {
    const { canonical, generation, metrics } = this.#parts;
    this.#parts = { canonical, generation, metrics };
  }

  get isRunning(): boolean {
    return this.#parts.canonical.run?.status === "running";
  }

  /** True when the newest run has ended, or failed before it began. */
  get isOver(): boolean {
    return !this.isRunning && (this.#parts.canonical.run !== undefined || this.#hasFailed);
  }

  /** `seq` is the last number that the event takes. */
  next(event: LoggedEvent, seq: bigint): Relayed {
    const { canonical, makeUp, onEvent } = this.#parts;
    const frames: AguiFrame[] = [];
    let lacks = false;
    for (const one of canonical.next(event)) {
      const told = onEvent?.(one) ?? one;
      if (!told.inRun) {
        this.#withheld = true;
        this.#parts.metrics.aguiMended.inc({ how: "withheld" });
        continue;
      }
      frames.push(...textFrames(this.#textsOf(told), { type: told.value["type"], seq }));
      if (told.value["type"] === "RUN_ERROR") this.#hasFailed = true;
      if (!this.#withheld || told.value["type"] !== "RUN_STARTED") continue;
      this.#withheld = false;
      if (makeUp === undefined) lacks = true;
      else frames.push(...makeUp(seq));
    }
    return { frames, lacks };
  }

  #textsOf(event: CanonicalEvent): readonly string[] {
    const texts = servedTo(this.#parts.generation, event);
    if (texts.length === 0) this.#parts.metrics.aguiMended.inc({ how: "left_out" });
    else if (texts[0] !== event.text) this.#parts.metrics.aguiMended.inc({ how: "translated" });
    return texts;
  }
}

/** The frames of server-sent events for an AG-UI client. */
export type AguiFrame = AguiEvent | { readonly comment: string };

interface AguiEvent {
  /** The last log number that the client has seen after this frame. */
  readonly id: string;
  /**
   * An event as JSON text. An event that many clients share is UTF-8 bytes, so that no client needs
   * a copy.
   */
  readonly data: string | Uint8Array;
  /** True when no run is open after this frame. */
  readonly endsRun: boolean;
}

const STANDING = {
  catching_up: "CATCHING_UP",
  live: "LIVE",
  degraded: "DEGRADED",
} as const satisfies Record<Standing, string>;

/** Uses the names of WatchState. Clients ignore comment frames. */
export function standingFrame(standing: Standing, seq: bigint): AguiFrame {
  return { comment: `watch_state ${STANDING[standing]} ${seq}` };
}

/** One event for a client of the generation; it may become several events or none. */
export function textFrames(
  texts: readonly AguiEvent["data"][],
  { type, seq }: { readonly type: unknown; readonly seq: bigint },
): readonly AguiEvent[] {
  const endsRun = type === "RUN_FINISHED" || type === "RUN_ERROR";
  return texts.map((data) => ({ id: String(seq), data, endsRun }));
}

/** For an event that is not stored. */
export function eventFrames(
  value: JsonObject,
  { generation, seq }: { readonly generation: Generation; readonly seq: bigint },
): readonly AguiEvent[] {
  const texts = servedTo(generation, { value, text: undefined });
  return textFrames(texts, { type: value["type"], seq });
}

/** Not stored: only its runner ends a run, and this run may still continue. */
export function stalledEvent(options: { readonly runStaleAfterMs: number }): JsonObject {
  const seconds = options.runStaleAfterMs / 1_000;
  const message = `the run has no end, and nothing has happened in it for ${seconds} s`;
  return { type: "RUN_ERROR", message, code: "STALLED" };
}

export interface NoRun {
  readonly sessionId: string;
  /** True when the session existed when the client came. */
  readonly isThere: boolean;
  /** Undefined: the client waits without a limit. */
  readonly waitMs: number | undefined;
}

/** Tells a person who reads the stream why it waits; sent at the beginning of the answer. */
export function waitingFrame({ sessionId, isThere, waitMs }: NoRun): AguiFrame {
  const what = isThere ? `session ${sessionId} has no run` : `there is no session ${sessionId}`;
  const end = waitMs === undefined ? "" : `, and this answer ends after ${waitMs / 1_000} s`;
  return { comment: `${what} yet${end}` };
}

/** Not stored. The id of a missing session may be a mistake, so the client is told. */
export function noRunEvent({ sessionId, waitMs = 0 }: NoRun): JsonObject {
  const message = `there was no session ${sessionId}, and no run began in it for ${waitMs / 1_000} s`;
  return { type: "RUN_ERROR", message, code: "NO_RUN" };
}
