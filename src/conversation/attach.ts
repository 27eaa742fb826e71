/** The beginning that every AG-UI answer has: what is asked is checked, and the watch begins. */
import type { Clock } from "../base/clock.ts";
import { seatTaker } from "../auth/caller-memory.ts";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import type { Live } from "../live/live.ts";
import type { Timers } from "../base/timers.ts";
import type { Watcher } from "../live/watcher.ts";
import type { Metrics } from "../observability/metrics.ts";
import { sessionNotFound } from "../store/refusals.ts";
import type { KeptMessage } from "./kept.ts";
import { StaleRun } from "./stale-run.ts";
import { violationsOf } from "../contract/checks.ts";
import type { CallContext } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";
import type { Transcripts } from "./transcripts.ts";

export interface AguiRequest {
  readonly sessionId: string;
  /** Of the client's RunAgentInput, which says what it can parse. */
  readonly protocolVersion: string | undefined;
  /** Stay for further runs. */
  readonly follow: boolean;
  /** Without a run: wait for one, with `follow` for as long as it takes. Else end at once. */
  readonly waits: boolean;
  readonly replay: "snapshot" | "events";
  /** Of a replay: times the recorded pace; undefined: as fast as the client takes it. */
  readonly speed: number | undefined;
  /** Of the client's RunAgentInput: the messages that it has. */
  readonly messages: readonly KeptMessage[];
}

export interface AguiParts {
  readonly live: Live;
  readonly transcripts: Transcripts;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly metrics: Pick<Metrics, "aguiMended" | "limitUse">;
}

export interface AguiOptions {
  /** auto: a session that is not there is waited for; strict: it is NOT_FOUND. */
  readonly sessionPolicy: "auto" | "strict";
  /** A run without an end has stalled when nothing has happened in it for so long. */
  readonly runStaleAfterMs: number;
  /** The longest wait for the first run of a session. */
  readonly runWaitMs: number;
  /** Characters of the longest event of a snapshot; above it the session is replayed. */
  readonly snapshotLengthMax: number;
  /** Replays at once: each holds the session as far as it is. */
  readonly replaysMax: number;
  /** Of what one replay holds, as a transcript is estimated. */
  readonly replayBytesMax: number;
}

/** Clients fail at a frame of 10 MiB, which they count in characters. */
export const AGUI_LIMITS: Omit<AguiOptions, "sessionPolicy" | "runStaleAfterMs" | "runWaitMs"> = {
  snapshotLengthMax: 8 * 1024 * 1024,
  replaysMax: 8,
  replayBytesMax: 67_108_864,
};

/** The parts and how they are used, as one thing to hand on. */
export interface AguiSetup extends AguiParts {
  readonly options: AguiOptions;
}

export interface Attached {
  readonly watcher: Watcher<"events">;
  /** The number up to which the log is known to go. */
  readonly head: bigint;
  /** Whether there was such a session. */
  readonly isThere: boolean;
  readonly stale: StaleRun;
  /** Aborts when the client left, and not when its run has stalled. */
  readonly signal: AbortSignal;
  leave(): void;
}

/** Whoever gets one calls its `leave`. */
export async function attachAgui(
  setup: AguiSetup,
  { sessionId }: Pick<AguiRequest, "sessionId">,
  context: CallContext,
): Promise<Attached> {
  const violations = violationsOf([checkSessionId(sessionId)]);
  if (violations.length > 0) throw invalidArgument(violations);
  const { sessionPolicy, runStaleAfterMs: staleAfterMs, runWaitMs: waitMs } = setup.options;
  const stale = new StaleRun(setup, { staleAfterMs, waitMs });
  const signal = AbortSignal.any([context.signal, stale.signal]);
  const held = setup.transcripts.heldSeq(sessionId);
  const watcher = await setup.live
    .attach({
      stream: "events",
      sessionId,
      signal,
      takeSeat: seatTaker(context),
    })
    .catch((error: unknown) => {
      const isDeleted = error instanceof ServiceError && error.reason === "SESSION_DELETED";
      // Another instance may have deleted it, and then nobody has said so here.
      if (isDeleted) setup.transcripts.drop(sessionId);
      throw error;
    });
  const { head } = watcher;
  if (held > (head?.eventSeq ?? 0n)) setup.transcripts.forget(sessionId);
  if (head === undefined && sessionPolicy === "strict") {
    watcher.leave();
    throw sessionNotFound(sessionId);
  }
  return {
    watcher,
    stale,
    signal: context.signal,
    head: head?.eventSeq ?? 0n,
    isThere: head !== undefined,
    leave() {
      stale.rest();
      watcher.leave();
    },
  };
}
