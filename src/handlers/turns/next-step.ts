/**
 * Decides what a claim does in the state that a session is in:
 *
 *   its run is stored already ───────────────────────────────────► repeat
 *   the epoch is below that of the session ──────────────────────► refuse (STALE_EPOCH)
 *   a run is open ── the epoch is not higher ────────────────────► refuse (RUN_OPEN)
 *                └── higher ── no message waits ─────────────────► claim: end the lost run
 *                          └── messages wait ────────────────────► claim: end it, start the next
 *   no run is open ── messages wait ─────────────────────────────► claim: start the run
 *                └─── no message waits ──────────────────────────► wait
 */
import { ServiceError } from "@session-ledger/base/errors";
import { noEpochAbove, staleEpoch } from "../../ingest/refusal.ts";
import type { Claim, MessageRow, SeenState } from "../../store/rows.ts";
import type { TurnState } from "../../store/turns.ts";
import { INT64_MAX } from "../../contract/checks.ts";

export type TurnStep =
  | { readonly kind: "repeat"; readonly seq: bigint }
  | { readonly kind: "refuse"; readonly error: ServiceError }
  | { readonly kind: "wait" }
  | ClaimStep;

export interface ClaimStep {
  readonly kind: "claim";
  readonly epoch: bigint;
  /** Empty: no run was open. */
  readonly lostRunId: string;
  /** Empty: the claim only ends the lost run. */
  readonly arrivals: readonly MessageRow[];
  readonly seen: SeenState;
  readonly claim: Claim;
  /** Arrivals that still wait after the claim. */
  readonly left: number;
}

/** `wanted` is the epoch that the caller named; 0: the highest so far plus 1. */
export function nextStep(state: TurnState, wanted: bigint): TurnStep {
  const { repeatedSeq, openRunId, arrivals, epoch: highest = 0n } = state;
  if (repeatedSeq !== undefined) return { kind: "repeat", seq: repeatedSeq };
  if (wanted === 0n && highest === INT64_MAX) return refuse(noEpochAbove(highest));
  if (wanted !== 0n && wanted < highest) return refuse(staleEpoch(wanted));
  const isHigher = wanted > highest;
  if (openRunId !== "" && !isHigher) return refuse(runOpen(state));
  if (openRunId === "" && arrivals.length === 0) return { kind: "wait" };
  const epoch = wanted === 0n ? highest + 1n : wanted;
  const claim = claimOf(state);
  const left = state.pending - claim.taken;
  // The lost run must have no output when its end is stored.
  const eventSeq = state.redelivered > 0 ? state.eventSeq : undefined;
  const seen = { turnSeq: state.turnSeq, openRunId, epoch: state.epoch, eventSeq };
  return { kind: "claim", epoch, lostRunId: openRunId, arrivals, seen, claim, left };
}

function claimOf({ turnSeq, fromSeq, redelivered, arrivals }: TurnState): Claim {
  const last = arrivals.at(-1);
  if (last === undefined) return { fromSeq: turnSeq, turnSeq, taken: 0 };
  return { fromSeq, turnSeq: last.seq, taken: arrivals.length - redelivered };
}

function refuse(error: ServiceError): TurnStep {
  return { kind: "refuse", error };
}

function runOpen({ openRunId, epoch = 0n }: TurnState): ServiceError {
  const message = `run ${openRunId} is open: it must end first, or a producer_epoch above ${epoch} takes over`;
  return new ServiceError("aborted", "RUN_OPEN", message, { retryAfterMs: 1_000 });
}
