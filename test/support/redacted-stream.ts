/** The path of a push stream from raw events to rows, with redaction, without a database or a clock. */
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
