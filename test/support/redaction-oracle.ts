/**
 * The expected masks of a whole text, by plain search: from each place with a begin, character by
 * character as far as the class reaches. No state, no tail, no pieces.
 */
import type { Pattern } from "@session-ledger/agui/redaction/patterns";
import { create } from "@bufbuild/protobuf";
import { RawEventSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { decodeFragments } from "@session-ledger/compressor/fragments";
import { expand } from "@session-ledger/compressor/expand";
import { StreamCommits } from "../../src/handlers/push-stream/commits.ts";
import { RowBuilder } from "../../src/handlers/push-stream/row-builder.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { EventRow } from "../../src/store/rows.ts";

/** The text with a `*` for each character of a secret. */
export function maskedWhole(text: string, patterns: readonly Pattern[]): string {
  const isMasked = new Set<number>();
  for (const { begin, characters, least, endsAt } of patterns) {
    const beginAt = new RegExp(begin, "y");
    const isIn = new RegExp(`^[${characters}]$`);
    for (let at = 0; at < text.length; at += 1) {
      beginAt.lastIndex = at;
      if (!beginAt.test(text)) continue;
      const from = beginAt.lastIndex;
      const isEnd = (place: number): boolean =>
        !isIn.test(text.charAt(place)) || (endsAt !== undefined && text.startsWith(endsAt, place));
      let to = from;
      while (!isEnd(to)) to += 1;
      if (to - from < least) continue;
      for (let masked = from; masked < to; masked += 1) isMasked.add(masked);
    }
  }
  return text.replaceAll(/[^]/g, (unit, at: number) => (isMasked.has(at) ? "*" : unit));
}

/** The most that may be masked: everything of a class behind a begin, however short it is. */
export function maskedAtMost(text: string, patterns: readonly Pattern[]): string {
  return maskedWhole(
    text,
    patterns.map((pattern) => ({ ...pattern, least: 1 })),
  );
}

/** Without dashes: those in a private key may be masked or not, because they reveal nothing. */
export function besidesDashes(masked: string, text: string): string {
  return masked.replaceAll(/[^]/g, (unit, at: number) => (text.charAt(at) === "-" ? "-" : unit));
}

/** The text with additional masks of the other: masking early is allowed, masking less is not. */
export function withMasksOf(text: string, other: string): string {
  return text.replaceAll(/[^]/g, (unit, at: number) => (other.charAt(at) === "*" ? "*" : unit));
}

// The path of a push stream from raw events to rows, with redaction, without a database or a clock.

export const MAX_AGE_MS = 250;

/** Shared by all streams: each registry watches the process for good. */
const metrics = createMetrics();

export class RedactedStream {
  readonly rows: RowBuilder;
  readonly #commits: StreamCommits;
  readonly #stored: EventRow[] = [];
  nowMs = 1_000;

  constructor(redactor: Redactor | undefined, { merges = true } = {}) {
    this.rows = new RowBuilder({
      validation: "strict",
      payloadBytesMax: 1_048_576,
      merges,
      redactor,
      compressor: { maxAgeMs: MAX_AGE_MS },
    });
    this.#commits = new StreamCommits(
      {
        ingest: {
          push: ({ rows }) => {
            this.#stored.push(...rows.filter((row) => row.stream === "events"));
            return new Promise(() => undefined);
          },
        },
        lostAfter: () => Promise.resolve(undefined),
        metrics,
      },
      {
        sessionId: "s",
        opened: { epoch: 1n, stream: 1n, lastClientSeq: 0n, refused: 0n, isCancelled: false },
        actor: undefined,
        onSettle: () => undefined,
      },
      this.rows,
    );
  }

  get numbers(): Pick<StreamCommits, "next" | "refusedEvents"> {
    return this.#commits;
  }

  push(payload: string): void {
    const event = create(RawEventSchema, { payload });
    const result = this.rows.add(event, { nowMs: this.nowMs, nowMicros: 1n });
    if (result.ok) this.#commits.addAccepted(payload.length, result.step);
    else this.#commits.addRefused(payload.length);
  }

  close(by: "flush" | "end"): void {
    if (this.rows.close(by)) this.#commits.closeGroup();
  }

  /** Moves the time and runs due work, as a timer would. */
  pass(ms: number): void {
    this.nowMs += ms;
    if (this.rows.closeDue(this.nowMs)) this.#commits.closeGroup();
  }

  /** Payloads of all events that are rows so far, in order. */
  events(): readonly string[] {
    this.#commits.handOver({ now: true });
    return this.#stored.flatMap((row) => {
      const fragments = row.fragments && decodeFragments(row.fragments);
      return [...expand({ ...row, seq: 1n, fragments })].map(({ payload }) => payload);
    });
  }
}
