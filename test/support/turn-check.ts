/**
 * The promises of turns as one question, asked of the rows of a session that only claims give runs to:
 *
 *   every turn      takes the next messages of people, none left out and none that had its turn,
 *                   except those of a lost run without output, which the next run may take again
 *   every run       begins when no run is open, once, and has only its own events
 *   every answer    is what the table has: a claim that was answered is there, with these messages
 *   the session     stands after the last turn, and counts the messages behind it
 */
import type { Row } from "./history.ts";

export interface ClaimRecord {
  readonly runId: string;
  /** The numbers of the messages that it was given; undefined: it got no turn, or no answer. */
  taken: readonly bigint[] | undefined;
}

export interface TurnedSession {
  readonly sessionId: string;
  /** The rows of the session, in order. */
  readonly messages: readonly Row[];
  readonly events: readonly Row[];
  readonly claims: readonly ClaimRecord[];
  /** Of the session's row. */
  readonly turnSeq: bigint;
  readonly pending: bigint;
}

interface OpenRun {
  readonly runId: string;
  /** The watermark before its turn. */
  readonly from: bigint;
  hasOutput: boolean;
}

interface Turn {
  readonly first: bigint;
  readonly last: bigint;
}

export function turnProblemsOf(session: TurnedSession): readonly string[] {
  const { sessionId, messages, events, claims, turnSeq, pending } = session;
  const users = messages.filter(({ eventType }) => eventType === "user").map(({ seq }) => seq);
  const problems: string[] = [];
  const problem = (what: string): void => void problems.push(`${sessionId}: ${what}`);
  const turns = new Map<string, Turn>();
  let watermark = 0n;
  let open: OpenRun | undefined;
  /** A run without output that the row before has ended as lost. */
  let lost: OpenRun | undefined;
  for (const row of events) {
    const event = eventOf(row);
    const [lostBefore, at] = [lost, `event ${row.seq}`];
    lost = undefined;
    if (row.eventType === "RUN_STARTED") {
      const turn = turnOf(event);
      if (open !== undefined) problem(`${at}: run ${row.runId} begins while ${open.runId} is open`);
      if (turns.has(row.runId)) problem(`${at}: run ${row.runId} begins twice`);
      const next = users.find((seq) => seq > watermark);
      const again = lostBefore && users.find((seq) => seq > lostBefore.from);
      const isAgain = turn.first !== next && turn.first === again;
      if (turn.first !== next && !isAgain) {
        const why = turn.first <= watermark ? "had its turn before" : `is not the next, ${next}`;
        problem(`${at}: message ${turn.first} of run ${row.runId} ${why}`);
      }
      if (!users.includes(turn.last) || turn.last < turn.first)
        problem(`${at}: ends at ${turn.last}`);
      open = {
        runId: row.runId,
        from: isAgain && lostBefore ? lostBefore.from : watermark,
        hasOutput: false,
      };
      turns.set(row.runId, turn);
      watermark = turn.last;
    } else if (row.eventType === "RUN_ERROR") {
      lost = open?.hasOutput === false ? open : undefined;
      open = undefined;
    } else if (row.eventType === "RUN_FINISHED") {
      if (event["runId"] !== open?.runId)
        problem(`${at}: ends ${String(event["runId"])}, not ${open?.runId}`);
      open = undefined;
    } else {
      if (event["value"] !== open?.runId)
        problem(`${at}: of ${String(event["value"])}, in ${open?.runId}`);
      if (open !== undefined) open.hasOutput = true;
    }
  }
  for (const { runId, taken } of claims) {
    const turn = turns.get(runId);
    if (taken === undefined) continue;
    if (turn === undefined) {
      problem(`run ${runId} was claimed, and is not there`);
      continue;
    }
    const stored = users.filter((seq) => seq >= turn.first && seq <= turn.last);
    if (stored.join() !== taken.join())
      problem(`run ${runId} was given ${taken.join()}, not ${stored.join()}`);
  }
  const left = BigInt(users.filter((seq) => seq > watermark).length);
  if (turnSeq !== watermark)
    problem(`stands at message ${turnSeq}, and the last turn ends at ${watermark}`);
  if (pending !== left) problem(`counts ${pending} messages that wait, and ${left} do`);
  return problems;
}

function eventOf({ payload }: Row): Readonly<Record<string, unknown>> {
  return JSON.parse(payload);
}

function turnOf(event: Readonly<Record<string, unknown>>): Turn {
  const text = JSON.stringify(event["metadata"] ?? {});
  const [, first = "0", last = "0"] = /"consumed":\{"first":(\d+),"last":(\d+)\}/.exec(text) ?? [];
  return { first: BigInt(first), last: BigInt(last) };
}

// The promises of cancels as one question, asked of the rows of a session whose runs are all
// cancelled: an acknowledged cancel is in the log, once, and its run has ended, once.

export interface CancelRecord {
  readonly runId: string;
  /** The number of the message; undefined: the cancel was not acknowledged. */
  seq: bigint | undefined;
}

export interface CancelledSession {
  readonly sessionId: string;
  /** The rows of the session, in order. */
  readonly messages: readonly Row[];
  readonly events: readonly Row[];
  readonly cancels: readonly CancelRecord[];
}

const ENDS: ReadonlySet<string> = new Set(["RUN_FINISHED", "RUN_ERROR"]);

export function cancelProblemsOf(session: CancelledSession): readonly string[] {
  const { sessionId, messages, events, cancels } = session;
  const stored = messages.map(({ seq, payload }) => ({
    seq,
    text: JSON.parse(payload) as unknown,
  }));
  return cancels.flatMap(({ runId, seq }) => {
    if (seq === undefined) return [];
    const own = stored.filter(({ text }) => JSON.stringify(text).includes(JSON.stringify(runId)));
    const ends = events.filter((row) => row.runId === runId && ENDS.has(row.eventType)).length;
    const name = `${sessionId}: the cancel of run ${runId}`;
    return [
      ...(own.some((one) => one.seq === seq) ? [] : [`${name} is not there as message ${seq}`]),
      ...(own.length <= 1 ? [] : [`${name} is there ${own.length} times`]),
      ...(ends === 1 ? [] : [`${name} was answered, and the run has ${ends} ends`]),
    ];
  });
}
