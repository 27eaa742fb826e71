/**
 * A session's rows, folded up to one cut: the open constructs, and the transcript that a client
 * would show. Between two rows a fold is complete: such a moment existed.
 */
import type { JsonObject } from "@session-ledger/agui/json";
import type { RawEvent } from "@session-ledger/compressor/expand";
import type { TranscriptRow } from "../store/pages.ts";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import type { LoggedEvent } from "@session-ledger/agui/canonical/event";
import { type CountedRow, lastNumberOf } from "./folding.ts";
import type { TranscriptMessageRow } from "../store/transcript-messages.ts";
import { type Cut, later, NOTHING } from "./merging.ts";
import { Snapshot, type FoldedMessages } from "./snapshot.ts";
import { USER_ROW_TYPE, messagesOfRow } from "@session-ledger/agui/canonical/user-messages";
import { LEAVES, Transcript } from "@session-ledger/agui/transcript/transcript";
import { weightOf } from "@session-ledger/agui/transcript/weight";

type FoldedRow = LoggedEvent &
  CountedRow &
  Pick<TranscriptRow, "stream" | "newestMicros" | "createdMicros">;

/** The memory of an entry without the texts, which the transcript counts; Node 24, by its fields. */
const MESSAGE_ROW_BYTES = 320;
/** Above this bound the oldest branch has no number. */
const BRANCHES_MAX = 1_000;

export class Fold {
  readonly #canonical: Canonical;
  readonly #transcript = new Transcript();
  readonly #messageRows: FoldedMessages[] = [];
  #cut: Cut = NOTHING;
  /** Of the last event, or at least of the first event in its row. */
  #newestMicros: bigint | number | undefined;
  #failure: JsonObject | undefined;
  #failureBytes = 0;
  #branches: readonly bigint[] = [];
  #snapshot: Snapshot | undefined;

  constructor(sessionId: string) {
    this.#canonical = new Canonical(sessionId);
  }

  /** The last numbers that it has seen, or knows to be absent. */
  get cut(): Cut {
    return this.#cut;
  }

  /** False: only user messages matter. */
  get needsAllMessages(): boolean {
    return !this.#canonical.hasSpeech;
  }

  /** Its memory by packages/agui/src/transcript/weight.ts, without the texts made from it. */
  get bytes(): number {
    const rowBytes = this.#messageRows.length * MESSAGE_ROW_BYTES;
    return this.#canonical.bytes + this.#transcript.bytes + this.#failureBytes + rowBytes;
  }

  /** The same, with the texts that were made. */
  get bytesWithTexts(): number {
    return this.bytes + (this.#snapshot?.textBytes ?? 0);
  }

  take(row: FoldedRow | TranscriptMessageRow): void {
    if (row.stream === "events") this.#addEvents(row);
    else this.#addMessages(row);
  }

  #addEvents(row: FoldedRow): void {
    this.#apply(row);
    this.#moveTo({ ...this.#cut, events: lastNumberOf(row) });
    this.#newestMicros = row.newestMicros ?? row.createdMicros;
  }

  #addMessages(row: TranscriptMessageRow): void {
    if (row.eventType === USER_ROW_TYPE || this.needsAllMessages) {
      const added = messagesOfRow(row);
      const messages = this.#canonical.onMessages(added);
      this.#transcript.say(messages, added.isFromUser ? "person" : "agent");
      const { seq, isFromUser, resume } = added;
      if (messages.length > 0 || resume.length > 0) {
        const afterSeq = this.#cut.events;
        this.#messageRows.push({ seq, rowId: row.id, afterSeq, messages, isFromUser, resume });
      }
    }
    this.#moveTo({ ...this.#cut, messages: row.seq });
  }

  /** Adds one event of the next row, which is a merged row. */
  addEvent(raw: RawEvent, conformant: boolean): void {
    this.#apply({ ...raw, conformant });
    this.#moveTo({ ...this.#cut, events: raw.seq });
    this.#newestMicros = raw.createdAtMicros;
  }

  /** The id of the message with this id, or of the row with this id; undefined: none. */
  messageOf(id: string): string | undefined {
    if (this.#transcript.has(id)) return id;
    const row = this.#messageRows.find(({ rowId }) => rowId === id);
    const ids = row?.messages.map((message) => message["id"]) ?? [];
    return ids.filter((one) => typeof one === "string").find((one) => this.#transcript.has(one));
  }

  /** Moves to the cut. The other rows up to it were erased. */
  skipTo({ events, messages }: Cut): void {
    const cut = {
      events: events > this.#cut.events ? events : this.#cut.events,
      messages: messages > this.#cut.messages ? messages : this.#cut.messages,
    };
    if (later(this.#cut, cut) !== this.#cut) this.#moveTo(cut);
  }

  /** A branch that was left is shown without the message that left it. */
  leaveOutBranches(): void {
    const ids = this.#canonical.turns.editing;
    if (ids.length === 0) return;
    this.#transcript.apply({ type: LEAVES, ids, messages: [] });
    this.#snapshot = undefined;
  }

  /** The current state; the same object until the next row. */
  snapshot(): Snapshot {
    this.#snapshot ??= new Snapshot(this.#canonical.clone(), this.#transcript, {
      cut: this.#cut,
      newestMicros: this.#newestMicros === undefined ? undefined : BigInt(this.#newestMicros),
      failure: this.#failure,
      messageRows: this.#messageRows,
      branches: this.#branches,
    });
    return this.#snapshot;
  }

  #apply(event: LoggedEvent): void {
    for (const { value, inRun } of this.#canonical.next(event, this.#transcript)) {
      this.#transcript.apply(value);
      if (value["type"] === LEAVES && this.#branches.at(-1) !== event.seq - 1n)
        this.#branches = [...this.#branches, event.seq - 1n].slice(-BRANCHES_MAX);
      if (!inRun || value["type"] !== "RUN_ERROR") continue;
      this.#failure = value;
      this.#failureBytes = weightOf(value).bytes;
    }
  }

  #moveTo(cut: Cut): void {
    this.#cut = cut;
    this.#snapshot = undefined;
  }
}
