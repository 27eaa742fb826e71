/**
 * A session's event rows, folded: what is open in it and what a client would show of it, up to one
 * number. Between two rows a fold is whole, so whoever looks at one then sees a moment that there was.
 */
import { type PlacedOpenings, placeOpenings } from "./canonical/placed-openings.ts";
import { Canonical, type CanonicalRun } from "./canonical/canonical.ts";
import type { LoggedEvent } from "./canonical/event.ts";
import { type Generation, servedTo } from "./generation/served.ts";
import { isObject, type JsonObject, parseObject } from "../agui/json.ts";
import { withoutAnswered } from "./transcript/interrupts.ts";
import { transcriptMarkdown } from "./transcript/markdown.ts";
import { transcriptText } from "./transcript/text.ts";
import { Transcript } from "./transcript/transcript.ts";
import { charBytes, weightOf } from "./transcript/weight.ts";
import { ServiceError } from "../base/errors.ts";
import type { RawEvent } from "../compressor/expand.ts";
import type { EventRow } from "../store/rows.ts";
import { OWNS_ACTIVITIES } from "./forget.ts";
import { type CountedRow, lastNumberOf } from "./transcripts-rows.ts";

export interface FoldedRow extends LoggedEvent, CountedRow {
  /** When the last of its events happened, where it is known; of a page's last row it is. */
  readonly newestMicros?: bigint | undefined;
}

export class Fold {
  readonly #canonical: Canonical;
  readonly #transcript = new Transcript();
  #seq = 0n;
  #newestMicros: bigint | undefined;
  #failure: JsonObject | undefined;
  #failureBytes = 0;
  #snapshot: Snapshot | undefined;

  constructor(sessionId: string) {
    this.#canonical = new Canonical(sessionId);
  }

  /** The last number that it has seen, or knows not to be there. */
  get seq(): bigint {
    return this.#seq;
  }

  /** What it keeps of memory, as conversation/transcript/weight.ts estimates it; without texts made of it. */
  get bytes(): number {
    return this.#canonical.bytes + this.#transcript.bytes + this.#failureBytes;
  }

  /** The same, with the texts that were made. */
  get bytesWithTexts(): number {
    return this.bytes + (this.#snapshot?.textBytes ?? 0);
  }

  /** The next row. */
  add(row: FoldedRow): void {
    this.#apply(row);
    this.#moveTo(lastNumberOf(row));
    this.#newestMicros = row.newestMicros ?? this.#newestMicros;
  }

  /** One event of the next row, which is a merged one. */
  addEvent(raw: RawEvent, conformant: boolean): void {
    this.#apply({ ...raw, conformant });
    this.#moveTo(raw.seq);
    this.#newestMicros = raw.createdAtMicros;
  }

  /** There is nothing up to this number: it was erased. */
  skipTo(seq: bigint): void {
    if (seq > this.#seq) this.#moveTo(seq);
  }

  /** As it is now; the same one until the next row. */
  snapshot(): Snapshot {
    this.#snapshot ??= new Snapshot(this.#canonical.clone(), this.#transcript, {
      seq: this.#seq,
      newestMicros: this.#newestMicros,
      failure: this.#failure,
    });
    return this.#snapshot;
  }

  #apply(event: LoggedEvent): void {
    for (const { value, inRun } of this.#canonical.next(event)) {
      this.#transcript.apply(value);
      if (!inRun || value["type"] !== "RUN_ERROR") continue;
      this.#failure = value;
      this.#failureBytes = weightOf(value).bytes;
    }
  }

  #moveTo(seq: bigint): void {
    this.#seq = seq;
    this.#snapshot = undefined;
  }
}

/** When the last of what the row stands for happened, as far as the row says. */
export function newestMicrosOf(row: EventRow): bigint {
  return row.completedAtMicros ?? row.createdAtMicros;
}

/**
 * A fold at one number. The fold goes on, so everything is made texts of at once, and once for
 * everybody who comes before the next row.
 */
export class Snapshot {
  readonly seq: bigint;
  /** Of the newest row; undefined when there was none. */
  readonly newestMicros: bigint | undefined;
  /** Of a run that failed before it began, where there is no other; a client takes it as it is. */
  readonly failure: JsonObject | undefined;
  readonly messagesText: string;
  /** Undefined: no state was ever set. */
  readonly stateText: string | undefined;
  readonly interruptsText: string;
  readonly isStateTooLarge: boolean;
  readonly #canonical: Canonical;
  #messageIds: readonly unknown[] | undefined;
  #openings: PlacedOpenings | undefined;
  readonly #served = new Map<Generation, readonly Uint8Array[]>();

  /** The clone of what the fold continues with is this one's own. */
  constructor(
    canonical: Canonical,
    transcript: Transcript,
    at: Pick<Snapshot, "seq" | "newestMicros" | "failure">,
  ) {
    this.#canonical = canonical;
    this.failure = canonical.run === undefined ? at.failure : undefined;
    this.seq = at.seq;
    this.newestMicros = at.newestMicros;
    this.messagesText = JSON.stringify(transcript.messages());
    this.interruptsText = JSON.stringify(transcript.interrupts());
    this.isStateTooLarge = transcript.isStateTooLarge;
    const { state } = transcript;
    this.stateText = state === undefined ? undefined : JSON.stringify(state);
  }

  get run(): CanonicalRun | undefined {
    return this.#canonical.run;
  }

  /** Only clients that come back ask. */
  get messageIds(): readonly unknown[] {
    this.#messageIds ??= objectsOf(this.messagesText).map(({ id }) => id);
    return this.#messageIds;
  }

  /** Whether the log has, or ever had, a message with this id. */
  hasHad(messageId: string): boolean {
    return this.#canonical.hasHadMessage(messageId) || this.messageIds.includes(messageId);
  }

  get hadActivities(): boolean {
    return this.#canonical.hadActivities;
  }

  /** The events that open again what is open, and on which side of the snapshots they go. */
  get openings(): PlacedOpenings {
    if (this.#openings !== undefined) return this.#openings;
    const openings = this.#canonical.openings();
    const messages = openings.length === 0 ? [] : objectsOf(this.messagesText);
    this.#openings = placeOpenings(openings, messages);
    return this.#openings;
  }

  /** The end of the newest run, without what it asked for and was answered since. */
  pendingOnly(end: JsonObject): JsonObject {
    return withoutAnswered(end, objectsOf(this.interruptsText));
  }

  /** Of the texts, and of what they become for those who are served them. */
  get textBytes(): number {
    const { messagesText, interruptsText, stateText = "" } = this;
    return 2 * charBytes(messagesText.length + interruptsText.length + stateText.length);
  }

  /** Continues at the row after `seq`. */
  canonical(): Canonical {
    return this.#canonical.clone();
  }

  /** Characters of the longest of the events that `servedAs` gives. */
  get longest(): number {
    return Math.max(this.messagesText.length, this.stateText?.length ?? 0);
  }

  /** MESSAGES_SNAPSHOT, and STATE_SNAPSHOT when there is state, as UTF-8, the same bytes for all. */
  servedAs(generation: Generation): readonly Uint8Array[] {
    const known = this.#served.get(generation);
    if (known !== undefined) return known;
    const events = snapshotTexts(this, generation).flatMap((text) =>
      servedTo(generation, { value: parseObject(text), text }).map((served) => Buffer.from(served)),
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

/** The objects of a list that is JSON text, as values of the caller's own. */
export function objectsOf(text: string): readonly JsonObject[] {
  const values: unknown = JSON.parse(text);
  return Array.isArray(values) ? values.filter(isObject) : [];
}

/** A session as an AG-UI client would show it, up to one number. */
export class SessionTranscript {
  readonly upToSeq: bigint;
  readonly messagesText: string;
  /** Undefined: no state was ever set. */
  readonly stateText: string | undefined;
  readonly interruptsText: string;
  /** Patches took the state past its bound: it is given up until the next snapshot of it. */
  readonly isStateTooLarge: boolean;

  constructor(snapshot: Snapshot) {
    const { seq, messagesText, stateText, interruptsText, isStateTooLarge } = snapshot;
    this.upToSeq = seq;
    this.isStateTooLarge = isStateTooLarge;
    this.messagesText = messagesText;
    this.stateText = stateText;
    this.interruptsText = interruptsText;
  }

  /** The caller's own. */
  get messages(): readonly JsonObject[] {
    return objectsOf(this.messagesText);
  }

  /** For a person, who sees who says what. */
  readable(form: "text" | "markdown"): string {
    if (this.messagesText.length > READABLE_CHARS_MAX) throw tooLargeToRead();
    return form === "text" ? transcriptText(this.messages) : transcriptMarkdown(this.messages);
  }

  get state(): unknown {
    return this.stateText === undefined ? undefined : JSON.parse(this.stateText);
  }

  /** That wait for an answer. */
  get interrupts(): readonly JsonObject[] {
    return objectsOf(this.interruptsText);
  }
}

/** Of JSON. To lay out 64 Mi characters takes 10 s, in which nothing else is done. */
const READABLE_CHARS_MAX = 8_388_608;

function tooLargeToRead(): ServiceError {
  const message = `the transcript has more than ${READABLE_CHARS_MAX} characters: read it as JSON`;
  return new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", message);
}
