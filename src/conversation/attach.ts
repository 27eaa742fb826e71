/** The beginning of every AG-UI answer: the request is checked, and the watch begins. */
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
  /** From the client's RunAgentInput: the version of the protocol that the client parses. */
  readonly protocolVersion: string | undefined;
  /** True: the answer stays open for further runs. */
  readonly follow: boolean;
  /**
   * True: a session without a run is waited for; with `follow`, without a limit. False: the answer
   * ends at once.
   */
  readonly waits: boolean;
  readonly replay: "snapshot" | "events";
  /**
   * The speed of a replay, as a multiple of the recorded pace; undefined: as fast as the client
   * reads.
   */
  readonly speed: number | undefined;
  /** From the client's RunAgentInput: the messages that the client has. */
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
  /** auto: the answer waits for a session that does not exist; strict: the answer is NOT_FOUND. */
  readonly sessionPolicy: "auto" | "strict";
  /** A run without an end has stalled after this long without an event. */
  readonly runStaleAfterMs: number;
  /** The longest wait for the first run of a session. */
  readonly runWaitMs: number;
  /**
   * The limit for the longest event of a snapshot, in characters; above it the session is replayed.
   */
  readonly snapshotLengthMax: number;
  /** Replays at once: each holds the session up to its place. */
  readonly replaysMax: number;
  /** The limit of one replay's memory, estimated like a transcript. */
  readonly replayBytesMax: number;
}

/** Clients fail at a frame of 10 MiB, which they count in characters. */
export const AGUI_LIMITS: Omit<AguiOptions, "sessionPolicy" | "runStaleAfterMs" | "runWaitMs"> = {
  snapshotLengthMax: 8 * 1024 * 1024,
  replaysMax: 8,
  replayBytesMax: 67_108_864,
};

/** The parts and the options, passed on as one value. */
export interface AguiSetup extends AguiParts {
  readonly options: AguiOptions;
}

export interface Attached {
  readonly watcher: Watcher<"events">;
  /** The log has every row up to this number. */
  readonly head: bigint;
  /** True when the session existed. */
  readonly isThere: boolean;
  readonly stale: StaleRun;
  /** Aborts when the client left, and not when its run has stalled. */
  readonly signal: AbortSignal;
  leave(): void;
}

/** The caller must call `leave` of the result. */
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
      // Another instance may have deleted the session, and then no handler of this instance has
      // dropped the transcript.
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
