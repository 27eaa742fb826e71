/** A session at one number, as texts that all callers share. */
import { parseExact } from "@session-ledger/agui/exact-json";
import { type JsonObject, objectsIn, parseExactObject } from "@session-ledger/agui/json";
import { ServiceError } from "@session-ledger/base/errors";
import type { Canonical, CanonicalRun } from "@session-ledger/agui/canonical/canonical";
import { type Generation, servedTo } from "@session-ledger/agui/generation/served";
import { OWNS_ACTIVITIES } from "./client-messages.ts";
import type { Cut } from "./merging.ts";
import { type PlacedOpenings, placeOpenings } from "./reopened-constructs.ts";
import { transcriptMarkdown, transcriptText } from "@session-ledger/agui/transcript/readable";
import { type Transcript, withoutAnswered } from "@session-ledger/agui/transcript/transcript";
import { charBytes } from "@session-ledger/agui/transcript/weight";

/** The messages of a row, in their place. */
export interface FoldedMessages {
  readonly seq: bigint;
  readonly rowId: string;
  /** The number of the last event before it. */
  readonly afterSeq: bigint;
  readonly messages: readonly JsonObject[];
  readonly isFromUser: boolean;
  readonly resume: readonly JsonObject[];
}

interface FoldedAt extends Pick<Snapshot, "cut" | "newestMicros" | "failure" | "branches"> {
  /** Only grows. */
  readonly messageRows: readonly FoldedMessages[];
}

/** A fold at one number. The fold changes, so its parts are serialised at once, for all callers. */
export class Snapshot {
  readonly cut: Cut;
  readonly newestMicros: bigint | undefined;
  /** The RUN_ERROR of a run that failed before it began, without another run. */
  readonly failure: JsonObject | undefined;
  readonly messagesText: string;
  /** Undefined: no state was ever set. */
  readonly stateText: string | undefined;
  readonly interruptsText: string;
  /** The ids of the runs that asked, and that a later run has ended without an answer. */
  readonly unansweredRuns: ReadonlySet<unknown>;
  /** Patches made the state too large: it is dropped until the next snapshot of it. */
  readonly isStateTooLarge: boolean;
  /** The last event of each branch that was left, in order; the newest branch is not among them. */
  readonly branches: readonly bigint[];
  readonly #canonical: Canonical;
  readonly #messageRows: readonly FoldedMessages[];
  readonly #messageRowCount: number;
  #messageIds: readonly unknown[] | undefined;
  #openings: PlacedOpenings | undefined;
  readonly #served = new Map<Generation, readonly Uint8Array[]>();

  /** `clone` is a copy of the state that the fold continues with; it belongs to this snapshot. */
  constructor(canonical: Canonical, transcript: Transcript, at: FoldedAt) {
    this.#canonical = canonical;
    this.failure = canonical.run === undefined ? at.failure : undefined;
    this.cut = at.cut;
    this.branches = at.branches;
    this.#messageRows = at.messageRows;
    this.#messageRowCount = at.messageRows.length;
    this.newestMicros = at.newestMicros;
    this.messagesText = JSON.stringify(transcript.messages());
    this.interruptsText = JSON.stringify(transcript.interrupts());
    this.isStateTooLarge = transcript.isStateTooLarge;
    this.unansweredRuns = transcript.unansweredRuns;
    const { state } = transcript;
    this.stateText = state === undefined ? undefined : JSON.stringify(state);
  }

  /** The number of the last event in it. */
  get seq(): bigint {
    return this.cut.events;
  }

  get run(): CanonicalRun | undefined {
    return this.#canonical.run;
  }

  /** Message rows are part of it. */
  get hasMessages(): boolean {
    return this.#messageRowCount > 0;
  }

  /** The message rows that are part of it, in order. */
  messageRows(): readonly FoldedMessages[] {
    return this.#messageRows.slice(0, this.#messageRowCount);
  }

  /** The run in which a client gets the snapshot of a session without a run. */
  get messagesRun(): ReturnType<Canonical["messagesRun"]> {
    return this.#canonical.messagesRun(this.cut.messages);
  }

  /** Only returning clients need it. */
  get messageIds(): readonly unknown[] {
    this.#messageIds ??= this.messages.map(({ id }) => id);
    return this.#messageIds;
  }

  /** Whether the session has, or ever had, a message with this id. */
  hasHad(messageId: string): boolean {
    return this.#canonical.hasHad(messageId) || this.messageIds.includes(messageId);
  }

  /** Runs have taken the user messages up to this number. */
  get takenSeq(): bigint {
    return this.#canonical.turns.takenSeq;
  }

  /** The open run that answers a client's request; undefined: none. `waits`: no run has taken it. */
  runOf(requestId: string): CanonicalRun | "waits" | undefined {
    const state = this.#canonical.turns.stateOf(requestId);
    if (state !== "taken") return state;
    return this.run?.status === "running" ? this.run : undefined;
  }

  /** The number of the row in which a client gave this message, if no run has taken the row. */
  waitingAt(messageId: string): bigint | undefined {
    const { takenSeq } = this;
    const row = this.messageRows().findLast(
      ({ seq, rowId, messages }) =>
        seq > takenSeq &&
        !messageId.startsWith(rowId) && // The service gave it, and the client has it from here.
        messages.some(({ id }) => id === messageId),
    );
    return row?.seq;
  }

  /** The number of the row that begins a branch with this message, if no run has taken the row. */
  branchedAt(messageId: string): bigint | undefined {
    return this.#canonical.turns.branchedBy(messageId);
  }

  /** The number of the row that answers this interrupt, if no run has taken the row. */
  answeredAt(interruptId: string): bigint | undefined {
    return this.#canonical.turns.answerSeqOf(interruptId);
  }

  /** The number of the row that answers the question of a graph, if no run has taken the row. */
  get graphAnsweredAt(): bigint | undefined {
    return this.#canonical.turns.graphAnswerSeq;
  }

  get hadActivities(): boolean {
    return this.#canonical.hadActivities;
  }

  /** The events that reopen every open construct, and on which side of the snapshots they go. */
  get openings(): PlacedOpenings {
    if (this.#openings !== undefined) return this.#openings;
    const openings = this.#canonical.openings();
    this.#openings = placeOpenings(openings, openings.length === 0 ? [] : this.messages);
    return this.#openings;
  }

  /** ENDs of the open constructs, for the log. */
  endings(): readonly JsonObject[] {
    return this.#canonical.endings();
  }

  /** The end of the newest run, without interrupts that were answered since. */
  pendingOnly(end: JsonObject): JsonObject {
    return withoutAnswered(end, this.interrupts);
  }

  /** Bytes of the texts, and of the forms that clients are served. */
  get textBytes(): number {
    const { messagesText, interruptsText, stateText = "" } = this;
    return 2 * charBytes(messagesText.length + interruptsText.length + stateText.length);
  }

  /** New objects that belong to the caller. */
  get messages(): readonly JsonObject[] {
    return objectsIn(parseExact(this.messagesText));
  }

  /** The interrupts that wait for an answer; new objects too. */
  get interrupts(): readonly JsonObject[] {
    return objectsIn(parseExact(this.interruptsText));
  }

  /** For a person, with the name of each speaker. */
  readable(form: "text" | "markdown"): string {
    if (this.messagesText.length > READABLE_CHARS_MAX) throw tooLargeToRead();
    return form === "text" ? transcriptText(this.messages) : transcriptMarkdown(this.messages);
  }

  /** Continues at the rows after the cut. */
  canonical(): Canonical {
    return this.#canonical.clone();
  }

  /** The characters of the longest event that `servedAs` returns. */
  get longest(): number {
    return Math.max(this.messagesText.length, this.stateText?.length ?? 0);
  }

  /** MESSAGES_SNAPSHOT, and STATE_SNAPSHOT if any, as UTF-8 that all clients share. */
  servedAs(generation: Generation): readonly Uint8Array[] {
    const existing = this.#served.get(generation);
    if (existing !== undefined) return existing;
    const events = snapshotTexts(this, generation).flatMap((text) =>
      servedTo(generation, { value: parseExactObject(text), text }).map((served) =>
        Buffer.from(served),
      ),
    );
    this.#served.set(generation, events);
    return events;
  }
}

function snapshotTexts(
  { messagesText, stateText }: Snapshot,
  generation: Generation,
): readonly string[] {
  const metadata = generation === "1.0.0" ? `,"metadata":${JSON.stringify(OWNS_ACTIVITIES)}` : "";
  const messages = `{"type":"MESSAGES_SNAPSHOT","messages":${messagesText}${metadata}}`;
  if (stateText === undefined) return [messages];
  return [messages, `{"type":"STATE_SNAPSHOT","snapshot":${stateText}}`];
}

/** Of the JSON: the layout of 64 Mi characters takes 10 s, during which nothing else runs. */
const READABLE_CHARS_MAX = 8_388_608;

function tooLargeToRead(): ServiceError {
  const message = `the transcript has more than ${READABLE_CHARS_MAX} characters: read it as JSON`;
  return new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", message);
}
