/**
 * Which rows of people the runs of a log have taken, as far as the events tell (docs/turns.md):
 *
 *   RUN_STARTED with metadata.session.consumed   a claim: the rows up to consumed.last
 *   RUN_STARTED without it                       all rows before it, unless the session was claimed
 *
 * A row may answer interrupts. The run that takes the row is served with these answers in its input,
 * as a run of a client that resumes: so no reader waits for them any longer.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";

/** Above this bound the oldest answers are forgotten, and their interrupts stay pending. */
const ANSWERS_MAX = 1_000;
/** An entry of a map, with the id and the status. */
const ANSWER_BYTES = 300;

interface Answer {
  /** The number of the row. */
  readonly seq: bigint;
  readonly status: unknown;
}

/** What an input has beside messages, for a run that has none. */
export const EMPTY_INPUT = { state: {}, tools: [], context: [], forwardedProps: {} };

export class Turns {
  /** The rows up to this number were taken by runs. */
  #takenSeq = 0n;
  #heardSeq = 0n;
  #hasClaimed = false;
  /** The answers of rows that no run has taken, by the interrupt's id. */
  #answers: ReadonlyMap<string, Answer> = new Map();

  clone(): Turns {
    const copy = new Turns();
    copy.#takenSeq = this.#takenSeq;
    copy.#heardSeq = this.#heardSeq;
    copy.#hasClaimed = this.#hasClaimed;
    copy.#answers = this.#answers;
    return copy;
  }

  /** An estimate of its memory. */
  get bytes(): number {
    return this.#answers.size * ANSWER_BYTES;
  }

  get takenSeq(): bigint {
    return this.#takenSeq;
  }

  /** The row with an answer to this interrupt, which no run has taken. */
  answeredBy(interruptId: string): bigint | undefined {
    return this.#answers.get(interruptId)?.seq;
  }

  heard(seq: bigint, resume: readonly JsonObject[]): void {
    if (seq > this.#heardSeq) this.#heardSeq = seq;
    if (resume.length === 0) return;
    const answers = new Map(this.#answers);
    for (const { interruptId, status } of resume) {
      // The first answer counts.
      if (typeof interruptId !== "string" || answers.has(interruptId)) continue;
      answers.set(interruptId, { seq, status });
    }
    for (const oldest of answers.keys()) {
      if (answers.size <= ANSWERS_MAX) break;
      answers.delete(oldest);
    }
    this.#answers = answers;
  }

  /** A RUN_STARTED. Returns the same value unless rows that the run takes answer interrupts. */
  started(value: JsonObject): JsonObject {
    const last = consumedLast(value);
    if (last !== undefined) this.#hasClaimed = true;
    const taken = last ?? (this.#hasClaimed ? 0n : this.#heardSeq);
    if (taken > this.#takenSeq) this.#takenSeq = taken;
    const answered = [...this.#answers].filter(([, { seq }]) => seq <= this.#takenSeq);
    if (answered.length === 0) return value;
    this.#answers = new Map([...this.#answers].filter(([, { seq }]) => seq > this.#takenSeq));
    return resumed(
      value,
      answered.map(([interruptId, { status }]) => ({ interruptId, status })),
    );
  }
}

function consumedLast({ metadata }: JsonObject): bigint | undefined {
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const consumed = isObject(session) ? session["consumed"] : undefined;
  const last = isObject(consumed) ? consumed["last"] : undefined;
  return Number.isSafeInteger(last) ? BigInt(Number(last)) : undefined;
}

function resumed(value: JsonObject, answers: readonly JsonObject[]): JsonObject {
  const { threadId, runId, input } = value;
  const given = isObject(input) ? input : { threadId, runId, ...EMPTY_INPUT, messages: [] };
  const { resume } = given;
  const own: readonly unknown[] = Array.isArray(resume) ? resume : [];
  const known = new Set(own.filter(isObject).map(({ interruptId }) => interruptId));
  const added = answers.filter(({ interruptId }) => !known.has(interruptId));
  if (added.length === 0) return value;
  return { ...value, input: { ...given, resume: [...own, ...added] } };
}
