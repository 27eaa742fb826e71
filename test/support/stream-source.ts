/** The events of stream writers: whole streams one after the other, and invented sentences between them. */
import { expectedOf, noVersionAccepts } from "./recorded.ts";
import type { Random } from "./random.ts";
import type { ExpectedEvent } from "./stream-check.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "./streams.ts";

/** Pieces that are easily lost or changed: empty text, blanks, half pairs, characters that JSON escapes. */
const PIECES = [
  "",
  " ",
  "\n",
  "\ud83d",
  "\ude00",
  "token",
  " by",
  " token",
  '"',
  "\\",
  "\u0000",
  "é",
];
const SENTENCE_PIECES_MAX = 120;
const recorded = recordedStreams();
/** Some agents said nothing at all. */
const STREAMS = (recorded ?? ownStreams()).filter(({ events }) => events.length > 0);
/** A type that no version of the protocol has. */
const REFUSED = event("USAGE_METADATA", { tokens: 1 });

export class StreamSource {
  readonly #random: Random;
  #sentences = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  next(): readonly StreamEvent[] {
    if (this.#random.oneIn(2)) return this.#random.pick(STREAMS).events;
    const sentence = this.sentence();
    const at = this.#random.below(sentence.length);
    return this.#random.oneIn(3) ? sentence.toSpliced(at, 0, REFUSED) : sentence;
  }

  sentence(pieces = this.#random.below(SENTENCE_PIECES_MAX)): readonly StreamEvent[] {
    this.#sentences += 1;
    const of = { messageId: `sentence ${this.#sentences}` };
    const isTimed = this.#random.oneIn(2);
    let timestamp = 1_700_000_000_000;
    const contents = Array.from({ length: pieces }, () => {
      timestamp += this.#random.below(50) - 5; // Clocks step back.
      const delta = this.#random.pick(PIECES);
      return event("TEXT_MESSAGE_CONTENT", { ...of, delta, ...(isTimed ? { timestamp } : {}) });
    });
    return [
      event("TEXT_MESSAGE_START", { ...of, role: "assistant" }),
      ...contents,
      event("TEXT_MESSAGE_END", of),
    ];
  }
}

/** The expected event; undefined for one that has to be refused. No hand-written one is. */
export function expectationOf(sent: StreamEvent): ExpectedEvent | undefined {
  const isRefused = sent === REFUSED || (recorded !== undefined && noVersionAccepts(sent));
  return isRefused ? undefined : { eventType: sent.eventType, value: expectedOf(sent).value };
}

function event(type: string, fields: object): StreamEvent {
  return { eventType: type, payload: JSON.stringify({ type, ...fields }) };
}
