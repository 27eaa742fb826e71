/**
 * Tracks by the events which user rows the runs of a log have taken (docs/writing.md):
 *
 *   RUN_STARTED with metadata.session.consumed   a claim: the rows up to consumed.last
 *   RUN_STARTED without it                       all rows before it, unless the session was claimed
 *
 * A row may have the id of the client's request: while the run that has taken the row is open, the
 * client stops it under that id.
 *
 * A row may begin a branch of the conversation, which leaves it where the run begins that takes the row.
 *
 * A row may answer interrupts. The run that takes the row is served with these answers in its input,
 * as a run of a client that resumes: so no reader waits for them any longer.
 */
import { isObject, type JsonObject } from "../json.ts";
import type { Branch, RowMessages } from "./repeats.ts";

/** The oldest answers are forgotten above it (their interrupts stay pending), and requests. */
const ENTRIES_MAX = 1_000;
/** An entry of a map, with the id, and the status of an answer. */
const ENTRY_BYTES = 300;

interface InterruptAnswer {
  readonly seq: bigint;
  readonly status: unknown;
}

type TurnRow = Pick<
  RowMessages,
  "seq" | "messages" | "branch" | "resume" | "requestId" | "answersGraph"
>;

/** A row that no run has taken, from the first one on that begins a branch. */
type WaitingRow = Pick<RowMessages, "seq" | "messages" | "branch">;

/** The members of an input, apart from messages, for a run without an input. */
export const EMPTY_INPUT = { state: {}, tools: [], context: [], forwardedProps: {} };

const NO_BRANCHES: readonly never[] = [];

export class TurnTracker {
  /** The rows up to this number were taken by runs. */
  #takenSeq = 0n;
  #lastRowSeq = 0n;
  #hasClaimed = false;
  /** The newest run has taken the rows from here. */
  #newestFromSeq = 0n;
  /** The rows that the newest run has taken, and those that wait, by the id of the client's request. */
  #requests = new Map<string, bigint>();
  #sharesRequests = false;
  /** Empty, or the first one begins a branch. */
  #branching: readonly WaitingRow[] = [];
  /** The newest row that answers the question of a graph. */
  #graphAnswerSeq = 0n;
  /** The answers of rows that no run has taken, by the interrupt's id. */
  #answers: ReadonlyMap<string, InterruptAnswer> = new Map();

  clone(): TurnTracker {
    const copy = new TurnTracker();
    copy.#takenSeq = this.#takenSeq;
    copy.#lastRowSeq = this.#lastRowSeq;
    copy.#hasClaimed = this.#hasClaimed;
    copy.#newestFromSeq = this.#newestFromSeq;
    copy.#requests = this.#requests;
    copy.#sharesRequests = true;
    this.#sharesRequests = true; // The next write, on either side, makes a copy first.
    copy.#branching = this.#branching;
    copy.#graphAnswerSeq = this.#graphAnswerSeq;
    copy.#answers = this.#answers;
    return copy;
  }

  get bytes(): number {
    const entries = this.#answers.size + this.#requests.size + this.#branching.length;
    return entries * ENTRY_BYTES;
  }

  get takenSeq(): bigint {
    return this.#takenSeq;
  }

  /** The row with an answer to this interrupt, which no run has taken. */
  answerSeqOf(interruptId: string): bigint | undefined {
    return this.#answers.get(interruptId)?.seq;
  }

  /** The row with an answer to the question of a graph, which no run has taken. */
  get graphAnswerSeq(): bigint | undefined {
    return this.#graphAnswerSeq > this.#takenSeq ? this.#graphAnswerSeq : undefined;
  }

  /** What became of a client's request; undefined: its run has ended, or it never gave a row. */
  stateOf(requestId: string): "waits" | "taken" | undefined {
    const seq = this.#requests.get(requestId);
    if (seq === undefined || seq < this.#newestFromSeq) return undefined;
    return seq > this.#takenSeq ? "waits" : "taken";
  }

  /** The row that begins a branch with this message, which no run has taken. */
  branchedBy(messageId: string): bigint | undefined {
    const isOf = ({ branch, messages }: WaitingRow): boolean =>
      branch !== undefined && messages.some(({ id }) => id === messageId);
    return this.#branching.findLast(isOf)?.seq;
  }

  /** The ids of the messages that edit others, and that no run has taken. */
  get editing(): readonly unknown[] {
    return this.#branching.flatMap(({ branch, messages }) => {
      if (branch?.leaves !== "before") return [];
      return messages.map(({ id }) => id).filter((id) => id !== branch.messageId);
    });
  }

  addRow(row: TurnRow): void {
    const { seq, messages, branch, resume, requestId, answersGraph } = row;
    if (seq > this.#lastRowSeq) this.#lastRowSeq = seq;
    if (branch !== undefined || this.#branching.length > 0)
      this.#branching = [...this.#branching, { seq, messages, branch }].slice(-ENTRIES_MAX);
    if (answersGraph === true) this.#graphAnswerSeq = seq;
    if (requestId !== undefined) this.#addRequest(requestId, seq);
    if (resume.length === 0) return;
    const answers = new Map(this.#answers);
    for (const { interruptId, status } of resume) {
      // The first answer counts.
      if (typeof interruptId !== "string" || answers.has(interruptId)) continue;
      answers.set(interruptId, { seq, status });
    }
    this.#answers = bounded(answers);
  }

  #addRequest(requestId: string, seq: bigint): void {
    if (this.#sharesRequests) this.#requests = new Map(this.#requests);
    this.#sharesRequests = false;
    bounded(this.#requests.set(requestId, seq));
  }

  /** Rows that begin branches, of those that runs have taken; each is returned once. */
  branches(): readonly TakenBranch[] {
    const all = this.#branching;
    if (all.length === 0) return NO_BRANCHES;
    const rest = all.filter(({ seq }) => seq > this.#takenSeq);
    const first = rest.findIndex(({ branch }) => branch !== undefined);
    this.#branching = first === -1 ? [] : rest.slice(first);
    return all.flatMap(({ seq, branch, messages }, at): readonly TakenBranch[] => {
      if (branch === undefined || seq > this.#takenSeq) return [];
      return [{ ...branch, messages, later: all.slice(at + 1).flatMap((row) => row.messages) }];
    });
  }

  /** A RUN_STARTED. Returns the same value unless rows that the run takes answer interrupts. */
  startRun(value: JsonObject): JsonObject {
    const consumed = consumedIn(value);
    if (consumed !== undefined) this.#hasClaimed = true;
    const taken = consumed?.last ?? (this.#hasClaimed ? 0n : this.#lastRowSeq);
    // A lost run's rows may be taken again.
    this.#newestFromSeq = consumed?.first ?? this.#takenSeq + 1n;
    if (taken > this.#takenSeq) this.#takenSeq = taken;
    const remaining = [...this.#requests].filter(([, seq]) => seq >= this.#newestFromSeq);
    if (remaining.length < this.#requests.size) {
      this.#requests = new Map(remaining);
      this.#sharesRequests = false;
    }
    const answered = [...this.#answers].filter(([, { seq }]) => seq <= this.#takenSeq);
    if (answered.length === 0) return value;
    this.#answers = new Map([...this.#answers].filter(([, { seq }]) => seq > this.#takenSeq));
    return resumed(
      value,
      answered.map(([interruptId, { status }]) => ({ interruptId, status })),
    );
  }
}

export interface TakenBranch extends Branch {
  /** Those of its row. */
  readonly messages: readonly JsonObject[];
  /** Those of later rows. */
  readonly later: readonly JsonObject[];
}

/** The changed map, without its oldest entries. */
function bounded<V>(map: Map<string, V>): ReadonlyMap<string, V> {
  for (const oldest of map.keys()) {
    if (map.size <= ENTRIES_MAX) break;
    map.delete(oldest);
  }
  return map;
}

function consumedIn({ metadata }: JsonObject): Record<"first" | "last", bigint> | undefined {
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const consumed = isObject(session) ? session["consumed"] : undefined;
  const { first, last } = isObject(consumed) ? consumed : {};
  if (!Number.isSafeInteger(last)) return undefined;
  return {
    first: BigInt(Number.isSafeInteger(first) ? Number(first) : 0),
    last: BigInt(Number(last)),
  };
}

function resumed(value: JsonObject, answers: readonly JsonObject[]): JsonObject {
  const { threadId, runId, input } = value;
  const runInput = isObject(input) ? input : { threadId, runId, ...EMPTY_INPUT, messages: [] };
  const { resume } = runInput;
  const own: readonly unknown[] = Array.isArray(resume) ? resume : [];
  const answeredIds = new Set(own.filter(isObject).map(({ interruptId }) => interruptId));
  const added = answers.filter(({ interruptId }) => !answeredIds.has(interruptId));
  if (added.length === 0) return value;
  return { ...value, input: { ...runInput, resume: [...own, ...added] } };
}
