/**
 * Claims the waiting messages of a session as a turn. The session is read without a lock, the rows of
 * the claim are made for the state that was read, and the commit refuses them in any other state. So
 * a claim takes part in the batches of ingest, and never holds a session while it thinks.
 *
 *   read ── next step ─┬─ refuse, repeat ──────────────────────────────► answered
 *    ▲                 ├─ wait ── a message comes ──► read
 *    │                 │       └─ the time is over ───────────────────► answered
 *    │                 └─ claim ── committed ─────────────────────────► answered
 *    └── another claim or run came first ──┘   (a lost run is ended, and no message waits: wait)
 */
import { hash } from "node:crypto";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type {
  ClaimTurnRequest,
  ClaimTurnResponse,
} from "@session-ledger/proto/ambient/v1/turns_pb";
import { PAYLOAD_BYTES_MAX } from "@session-ledger/agui/payload";
import { splitRawEvent } from "@session-ledger/agui/split-event";
import { applyEdits, dropEdits, memberSpans } from "@session-ledger/agui/spans";
import { actorOf } from "../../auth/principal.ts";
import { serverBusy } from "../../base/budget.ts";
import { ServiceError } from "@session-ledger/base/errors";
import {
  type Check,
  checkEpoch,
  checkText,
  checkThat,
  refuseLargePayload,
  INT64_MAX,
  checkSessionId,
  refuse,
} from "../../contract/checks.ts";
import type { CallContext, Handlers } from "../../contract/context.ts";
import { toSessionEvent, toSessionMessage } from "../../contract/rows-to-wire.ts";
import { TurnMoved } from "../../ingest/refusal.ts";
import type { Metrics } from "../../observability/metrics.ts";
import { sessionDeleted, sessionNotFound } from "../../store/failure.ts";
import { type EventRow, type MessageRow, type Push, storedBytesOf } from "../../store/rows.ts";
import type { TurnState, TurnStore } from "../../store/turns.ts";
import { newEventRow, type PushOptions, type PushParts } from "../push.ts";
import type { ArrivalWaits } from "./arrival-waits.ts";
import { type ClaimStep, nextStep } from "./next-step.ts";
import { type RunStarted, runStarted, sessionMetadataOf } from "./run-started.ts";
import { durationMs } from "../../contract/times.ts";

/** A claim that waits holds its RUN_STARTED as the request, its text, parsed and as a row. */
const WAITING_COPIES = 3;

const MESSAGES_DEFAULT = 10;
const MESSAGES_MAX = 1_000;
const MESSAGES_RULE = `must be 1 to ${MESSAGES_MAX}, or 0 for ${MESSAGES_DEFAULT}`;
const WAIT_MS_MAX = 60_000;
const WAIT_RULE = `must be 0 to ${WAIT_MS_MAX / 1_000} seconds`;
/** Messages and the start of the run together; one message may be larger. */
const TURN_BYTES_MAX = 3 * 1024 * 1024;
const LOST =
  '{"type":"RUN_ERROR","message":"another runner took over this session","code":"RUNNER_LOST"}';

export interface ClaimParts extends PushParts {
  readonly turns: TurnStore;
  readonly waits: Pick<ArrivalWaits, "next">;
  readonly metrics: Pick<
    Metrics,
    "claims" | "turnWaitSeconds" | "turnMessages" | "turnEnvelopeTokens"
  >;
}

export interface ClaimOptions extends PushOptions {
  readonly sessionPolicy: "auto" | "strict";
}

export function createClaimTurn(
  parts: ClaimParts,
  options: ClaimOptions,
): Handlers<typeof SessionService>["claimTurn"] {
  return async (request, context) => {
    const claim = new TurnClaim(parts, options, { request, context });
    try {
      return await claim.run();
    } catch (error) {
      parts.metrics.claims.inc({ outcome: outcomeOf(error) });
      throw error;
    }
  };
}

/** `lost`: the claim ended a lost run, and no message waited. */
type ClaimOutcome = "claimed" | "repeated" | "nothing" | "lost";

function outcomeOf(error: unknown): string {
  const { reason } = ServiceError.from(error);
  if (reason === "NOTHING_WAITS") return "nothing";
  return reason === "RUN_OPEN" || reason === "STALE_EPOCH" ? reason.toLowerCase() : "failed";
}

interface ClaimCall {
  readonly request: ClaimTurnRequest;
  readonly context: CallContext;
}

/** One call. */
class TurnClaim {
  readonly #parts: ClaimParts;
  readonly #options: ClaimOptions;
  readonly #request: ClaimTurnRequest;
  readonly #context: CallContext;
  readonly #started: RunStarted;
  readonly #key: string;
  readonly #waitMs: number;
  readonly #untilMs: number;
  /** The run that this call has ended, and the epoch that it has taken for that. */
  #lost: { readonly runId: string; readonly epoch: bigint } | undefined;

  constructor(parts: ClaimParts, options: ClaimOptions, { request, context }: ClaimCall) {
    refuse(checksOf(request));
    refuseLargePayload(request.runStarted, options.payloadBytesMax);
    const { sessionId } = request;
    const text = parts.redactor?.payload(request.runStarted) ?? request.runStarted;
    this.#parts = parts;
    this.#options = options;
    this.#request = request;
    this.#context = context;
    this.#started = runStarted(text, { sessionId, mode: options.validation });
    this.#key = `claim:${this.#started.runId}`;
    this.#waitMs = request.wait === undefined ? 0 : durationMs(request.wait);
    this.#untilMs = parts.clock.monotonicMs() + this.#waitMs;
  }

  async run(): Promise<ClaimTurnResponse> {
    const { rates, groups } = this.#parts;
    const { sessionId, runStarted: payload, producerEpoch } = this.#request;
    rates.take(this.#context.principal, sessionId, Buffer.byteLength(payload));
    groups.close(sessionId);
    // Each turn of the loop means that another writer has committed, or that a message came.
    for (;;) {
      const state = await this.#read();
      const wanted = this.#lost?.epoch ?? producerEpoch;
      const step = state === undefined ? NOTHING : nextStep(state, wanted);
      switch (step.kind) {
        case "refuse":
          throw step.error;
        case "repeat": {
          const repeated = await this.#repeat(step.seq, state?.pending ?? 0);
          if (repeated !== undefined) return repeated;
          break;
        }
        case "wait":
          if (!(await this.#wait(state))) return this.#nothing();
          break;
        case "claim": {
          const answer = await this.#claim(step);
          if (answer !== undefined) return answer;
        }
      }
    }
  }

  async #read(): Promise<TurnState | undefined> {
    const { sessionId, runStarted: payload, redeliver } = this.#request;
    const { upToSeq, messagesMax } = this.#request;
    const state = await this.#parts.turns.readTurn({
      sessionId,
      key: this.#key,
      upToSeq: upToSeq === 0n ? INT64_MAX : upToSeq,
      rowsMax: messagesMax === 0 ? MESSAGES_DEFAULT : messagesMax,
      bytesMax: TURN_BYTES_MAX - Buffer.byteLength(payload),
      redeliver,
    });
    if (state?.isDeleted === true) throw sessionDeleted(sessionId);
    if (state === undefined && this.#options.sessionPolicy === "strict") {
      throw sessionNotFound(sessionId);
    }
    return state;
  }

  /** False: no message comes in time. */
  async #wait(state: TurnState | undefined): Promise<boolean> {
    const { sessionId, upToSeq } = this.#request;
    const afterSeq = state?.messageSeq ?? 0n;
    if (this.#waitMs === 0 || (upToSeq !== 0n && upToSeq <= afterSeq)) return false;
    const [untilMs, context] = [this.#untilMs, this.#context];
    const copiedBytes = WAITING_COPIES * this.#request.runStarted.length;
    if (context.memory?.resize("rows", copiedBytes) === false) throw serverBusy();
    return this.#parts.waits.next({ sessionId, afterSeq, untilMs, context });
  }

  #nothing(): ClaimTurnResponse {
    if (this.#lost !== undefined) return this.#answer("lost", { left: 0 });
    if (this.#waitMs > 0) return this.#answer("nothing", { left: 0 });
    const message = `no message of session ${this.#request.sessionId} waits for a turn`;
    throw new ServiceError("failed_precondition", "NOTHING_WAITS", message);
  }

  /** Undefined: the session must be read again. */
  async #claim(step: ClaimStep): Promise<ClaimTurnResponse | undefined> {
    const { ingest, metrics, clock } = this.#parts;
    const push = this.#pushOf(step);
    const { hasEnded: _, span } = this.#context;
    let stored: readonly EventRow[];
    try {
      const { rows, deduplicated } = await ingest.push(push, () => this.#context.hasEnded, span);
      if (deduplicated) return undefined; // Another claim of this run was first.
      stored = rows.filter((row) => row.stream === "events");
    } catch (error) {
      if (error instanceof TurnMoved && !this.#context.hasEnded) return undefined;
      throw error;
    }
    if (step.lostRunId !== "") this.#lost = { runId: step.lostRunId, epoch: step.epoch };
    const started = stored.at(-1);
    if (started === undefined || step.arrivals.length === 0) return undefined;
    const nowMicros = clock.nowMicros();
    metrics.turnMessages.observe(step.arrivals.length);
    metrics.turnEnvelopeTokens.inc(Number(this.#request.envelopeTokens));
    for (const { createdAtMicros } of step.arrivals) {
      metrics.turnWaitSeconds.observe(Math.max(0, Number(nowMicros - createdAtMicros)) / 1e6);
    }
    const { left, arrivals } = step;
    return this.#answer("claimed", { started, arrivals, left, epoch: step.epoch });
  }

  #pushOf({ epoch, lostRunId, arrivals, seen, claim }: ClaimStep): Push {
    const { clock } = this.#parts;
    const nowMicros = clock.nowMicros();
    const [first, last] = [arrivals[0], arrivals.at(-1)];
    const lost = lostRunId === "" ? [] : lostRows(nowMicros);
    const started =
      first === undefined || last === undefined
        ? []
        : [
            this.#started.row(
              {
                consumed: { first: first.seq, last: last.seq },
                producerEpoch: epoch,
                lostRunId: lostRunId === "" ? this.#lost?.runId : lostRunId,
              },
              nowMicros,
            ),
          ];
    const rows = [...lost, ...started].map((event) => newEventRow(event, undefined));
    const key = started.length === 0 ? undefined : this.#key;
    return {
      sessionId: this.#request.sessionId,
      stream: "events",
      key,
      // The same run again is the same claim, whatever else its request has.
      digest: key === undefined ? undefined : hash("sha256", key, "buffer"),
      epoch,
      actor: actorOf(this.#context.principal),
      seen,
      claim,
      rows,
      bytes: storedBytesOf(rows),
    };
  }

  /** The answer of an earlier claim; undefined: its start was erased since, and is no key any more. */
  async #repeat(seq: bigint, left: number): Promise<ClaimTurnResponse | undefined> {
    const { turns } = this.#parts;
    const { sessionId } = this.#request;
    const started = await turns.readStarted(sessionId, seq);
    if (started === undefined) return undefined;
    const session = sessionMetadataOf(started.payload);
    if (session === undefined) {
      const why = "an event with the key of this claim is not the start of a claimed run";
      throw new ServiceError("already_exists", "KEY_REUSED", why);
    }
    const arrivals = await turns.readTaken(sessionId, session.consumed);
    const { producerEpoch: epoch, lostRunId } = session;
    return this.#answer("repeated", { started, arrivals, left, epoch, lostRunId });
  }

  #answer(outcome: ClaimOutcome, turn: ClaimedTurnFields): ClaimTurnResponse {
    const { started, arrivals = [], left, epoch = this.#lost?.epoch ?? 0n } = turn;
    const { lostRunId = this.#lost?.runId ?? "" } = turn;
    this.#parts.metrics.claims.inc({ outcome });
    return {
      $typeName: "ambient.v1.ClaimTurnResponse",
      ...(started && {
        runStarted: toSessionEvent(readable(started, arrivals), outcome === "repeated"),
      }),
      messages: arrivals.map((row) => toSessionMessage(row)),
      waiting: BigInt(left),
      producerEpoch: epoch,
      lostRunId,
    };
  }
}

/** One message may nearly fill an answer. Then the start comes without the input, which has it again. */
function readable(started: EventRow, arrivals: readonly MessageRow[]): EventRow {
  const { payload } = started;
  const bytes = arrivals.reduce(
    (sum, { payload: text, sender = "" }) => sum + Buffer.byteLength(text) + sender.length * 3,
    Buffer.byteLength(payload),
  );
  if (bytes <= PAYLOAD_BYTES_MAX) return started;
  const members = memberSpans(payload);
  const isDropped = members.map(({ key }) => key === "input");
  return { ...started, payload: applyEdits(payload, dropEdits(members, isDropped)) };
}

interface ClaimedTurnFields {
  readonly started?: EventRow;
  readonly arrivals?: readonly MessageRow[];
  readonly left: number;
  readonly epoch?: bigint;
  readonly lostRunId?: string | undefined;
}

const NOTHING = { kind: "wait" } as const;

function lostRows(createdAtMicros: bigint) {
  const rows = splitRawEvent({ eventType: "RUN_ERROR", payload: LOST, createdAtMicros }, "strict");
  if (!rows.ok) throw new Error("the end of a lost run is no event of AG-UI");
  return rows.rows;
}

function checksOf(request: ClaimTurnRequest): readonly Check[] {
  const { messagesMax, upToSeq, envelopeTokens, wait } = request;
  return [
    checkSessionId(request.sessionId),
    checkEpoch(request.producerEpoch),
    checkThat("up_to_seq", upToSeq >= 0n, "must not be negative"),
    checkThat("messages_max", messagesMax >= 0 && messagesMax <= MESSAGES_MAX, MESSAGES_RULE),
    checkThat("run_started", request.runStarted !== "", "is required"),
    checkText("run_started", request.runStarted),
    checkThat("wait", wait === undefined || isWait(wait), WAIT_RULE),
    checkThat("envelope_tokens", envelopeTokens >= 0n, "must not be negative"),
  ];
}

function isWait(wait: Duration): boolean {
  return (
    wait.seconds >= 0n && wait.nanos >= 0 && wait.nanos < 1e9 && durationMs(wait) <= WAIT_MS_MAX
  );
}
