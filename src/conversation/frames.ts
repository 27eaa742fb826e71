/** What an AG-UI client is sent, as frames of server-sent events. */
import { type Generation, servedTo } from "./generation/served.ts";
import type { JsonObject } from "../agui/json.ts";
import type { Standing } from "../live/watcher.ts";

export type AguiFrame = AguiEvent | { readonly comment: string };

export interface AguiEvent {
  /** The last number that the client has seen with it. */
  readonly id: string;
  /** An event as JSON text; as UTF-8 where many are sent the same large one, and none has a copy. */
  readonly data: string | Uint8Array;
  /** No run is open behind it. */
  readonly endsRun: boolean;
}

const STANDING = {
  catching_up: "CATCHING_UP",
  live: "LIVE",
  degraded: "DEGRADED",
} as const satisfies Record<Standing, string>;

/** By the names of WatchState. No client hands comments on. */
export function standingFrame(standing: Standing, seq: bigint): AguiFrame {
  return { comment: `watch_state ${STANDING[standing]} ${seq}` };
}

/** One event as a client of the generation is sent it, which may be more or none. */
export function textFrames(
  texts: readonly AguiEvent["data"][],
  { type, seq }: { readonly type: unknown; readonly seq: bigint },
): readonly AguiEvent[] {
  const endsRun = type === "RUN_FINISHED" || type === "RUN_ERROR";
  return texts.map((data) => ({ id: String(seq), data, endsRun }));
}

/** Of an event that is not one of the stored ones. */
export function eventFrames(
  value: JsonObject,
  { generation, seq }: { readonly generation: Generation; readonly seq: bigint },
): readonly AguiEvent[] {
  const texts = servedTo(generation, { value, text: undefined });
  return textFrames(texts, { type: value["type"], seq });
}

/** Not stored: a run has an end when its runner says so, and this one may go on yet. */
export function stalledEvent(options: { readonly runStaleAfterMs: number }): JsonObject {
  const seconds = options.runStaleAfterMs / 1_000;
  const message = `the run has no end, and nothing has happened in it for ${seconds} s`;
  return { type: "RUN_ERROR", message, code: "STALLED" };
}

export interface NoRun {
  readonly sessionId: string;
  /** Whether the session was there when the client came. */
  readonly isThere: boolean;
  /** Undefined: the client waits on. */
  readonly waitMs: number | undefined;
}

/** What the client waits for, at the beginning of its answer; for a person who looks. */
export function waitingFrame({ sessionId, isThere, waitMs }: NoRun): AguiFrame {
  const what = isThere ? `session ${sessionId} has no run` : `there is no session ${sessionId}`;
  const end = waitMs === undefined ? "" : `, and this answer ends after ${waitMs / 1_000} s`;
  return { comment: `${what} yet${end}` };
}

/** Not stored. The id of a session that is not there may be a mistake, so the client is told. */
export function noRunEvent({ sessionId, waitMs = 0 }: NoRun): JsonObject {
  const message = `there was no session ${sessionId}, and no run began in it for ${waitMs / 1_000} s`;
  return { type: "RUN_ERROR", message, code: "NO_RUN" };
}
