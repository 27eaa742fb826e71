/**
 * The expected masks of a whole text, by plain search: from each place with a prefix, as far as the
 * pattern matches. No automaton, no state, no pieces.
 */
import type { Part, Secret } from "../../src/redaction/patterns.ts";
import { create } from "@bufbuild/protobuf";
import { RawEventSchema } from "../../gen/ambient/v1/event_stream_pb.ts";
import { decodeFragments } from "../../src/compressor/fragments.ts";
import { expand } from "../../src/compressor/expand.ts";
import { StreamCommits } from "../../src/api/push-stream/commits.ts";
import { Intake } from "../../src/api/push-stream/intake.ts";
import { StreamMeter } from "../../src/api/push-stream/meter.ts";
import { StreamRows } from "../../src/api/push-stream/stream-rows.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { Redactor } from "../../src/redaction/redactor.ts";
import type { NewRow } from "../../src/store/rows.ts";

/** The text with a `*` for each unit of a secret. */
export function maskedWhole(text: string, secrets: readonly Secret[]): string {
  const isMasked = new Set<number>();
  for (const { prefixes, parts, startsWord = false } of secrets) {
    for (const prefix of prefixes) {
      for (let at = text.indexOf(prefix); at !== -1; at = text.indexOf(prefix, at + 1)) {
        if (startsWord && isInWord(text, at)) continue;
        for (const unit of secretFrom(text, at + prefix.length, parts)) isMasked.add(unit);
      }
    }
  }
  return text.replaceAll(/[^]/g, (unit, at: number) => (isMasked.has(at) ? "*" : unit));
}

/** Without dashes: those in a private key may be masked or not, because they reveal nothing. */
export function besidesDashes(masked: string, text: string): string {
  return masked.replaceAll(/[^]/g, (unit, at: number) => (text.charAt(at) === "-" ? "-" : unit));
}

/** The text with additional masks of the other: masking early is allowed, masking less is not. */
export function withMasksOf(text: string, other: string): string {
  return text.replaceAll(/[^]/g, (unit, at: number) => (other.charAt(at) === "*" ? "*" : unit));
}

/** True after a letter or digit, unless it is the letter of an escape. */
function isInWord(text: string, at: number): boolean {
  const before = /(\\*)([A-Za-z0-9])$/.exec(text.slice(Math.max(0, at - 100), at));
  return before !== null && (before[1] ?? "").length % 2 === 0;
}

/** The masked units; none if the text is no secret. */
function secretFrom(text: string, start: number, parts: readonly Part[]): readonly number[] {
  let at = start;
  const units: number[] = [];
  for (const [index, part] of parts.entries()) {
    const { joint = "", characters, least, isGap = false, window, endsAtDashes = 0 } = part;
    if (text.slice(at, at + joint.length) !== joint) return [];
    for (let next = 0; next < joint.length; next += 1) units.push(at + next);
    at += joint.length;
    const isIn = new RegExp(`^[${characters}]$`);
    let count = 0;
    let dashes = 0;
    const own: number[] = [];
    for (; at < text.length; at += 1) {
      const unit = text.charAt(at);
      if (isIn.test(unit)) {
        dashes = 0;
        count += 1;
        own.push(at);
      } else if (unit === "-" && dashes + 1 < endsAtDashes) {
        dashes += 1;
      } else break;
    }
    if (count < least) return [];
    if (isGap) continue;
    const isLast = index === parts.length - 1;
    units.push(...(window === undefined || isLast ? own : own.slice(-window)));
  }
  return units;
}

// The path of a push stream from raw events to rows, with redaction, without a database or a clock.

export const MAX_AGE_MS = 250;

/** Shared by all streams: each registry watches the process for good. */
const meter = new StreamMeter(createMetrics());

export class RedactedStream {
  readonly rows: StreamRows;
  readonly #intake: Intake;
  readonly #commits: StreamCommits;
  readonly #stored: NewRow[] = [];
  nowMs = 1_000;

  constructor(redactor: Redactor | undefined, { merges = true } = {}) {
    this.#intake = new Intake({
      validation: "strict",
      payloadBytesMax: 1_048_576,
      merges,
      redactor,
    });
    this.#commits = new StreamCommits(
      {
        ingest: {
          push: ({ rows }) => {
            this.#stored.push(...rows);
            return new Promise(() => undefined);
          },
        },
        lostAfter: () => Promise.resolve(undefined),
        order: { observe: () => undefined },
        meter,
      },
      {
        sessionId: "s",
        opened: { epoch: 1n, stream: 1n, lastClientSeq: 0n, refused: 0n, isCancelled: false },
        actor: undefined,
        settled: () => undefined,
      },
    );
    const compressor = { maxAgeMs: MAX_AGE_MS };
    this.rows = new StreamRows(this.#commits, meter, { compressor, redactor });
  }

  get numbers() {
    return this.#commits.numbers;
  }

  push(payload: string): void {
    const taken = this.#intake.take(create(RawEventSchema, { payload }), 1n);
    this.rows.add({ taken, payloadBytes: payload.length, nowMs: this.nowMs });
  }

  /** Moves the time and runs due work, as a timer would. */
  pass(ms: number): void {
    this.nowMs += ms;
    if (this.nowMs >= (this.rows.dueAtMs ?? Number.POSITIVE_INFINITY)) this.rows.due(this.nowMs);
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
