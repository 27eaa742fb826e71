/**
 * Sends events by one push stream (docs/push-streams.md): in order, without waiting for each answer.
 * Events are kept until they are acknowledged, and sent again on the next stream after a break, under
 * the same epoch: each is stored once.
 *
 *   lines ──► waiting ── batches ──► the service
 *                └──── refused, committed ────┘
 */
import type { Conversation } from "@session-ledger/runner/internal/client";
import { ledger, type LedgerClient } from "@session-ledger/runner/internal/client";
import { failureOfStatus, RpcFailure } from "@session-ledger/runner/internal/failure";
import { Retries, type RetryOptions } from "@session-ledger/runner/internal/retry";

/** Events and bytes that are kept; the service reads on when it has committed a part of them. */
const WAITING_EVENTS_MAX = 16_384;
const WAITING_BYTES_MAX = 8_388_608;
/** Of one frame, so that it stays below the 4 MiB of gRPC; a single event may be larger. */
const FRAME_EVENTS_MAX = 1_024;
const FRAME_BYTES_MAX = 1_048_576;

export interface StreamLine {
  readonly number: number;
  readonly endByte: number;
  readonly eventType: string;
  readonly payload: string;
}

interface LineSenderParts {
  readonly client: Pick<LedgerClient, "converse">;
  readonly retry: RetryOptions;
  readonly sessionId: string;
  readonly epoch: bigint;
  readonly stopOnRefused: boolean;
  /** `line` is the last one of `stored` further events. */
  readonly committed: (line: StreamLine, stored: number, lastSeq: bigint) => void;
  readonly refused: (line: StreamLine, failure: RpcFailure) => void;
}

type PushFrames = Conversation<
  typeof ledger.pushSessionEvents.input,
  typeof ledger.pushSessionEvents.output
>;

const UNSEEN = new RpcFailure("UNKNOWN", "at or before it, a refusal was lost with the connection");

export class LineSender {
  readonly #parts: LineSenderParts;
  readonly #waiting: StreamLine[] = [];
  /** The number of the first waiting event; the events of an epoch are numbered from 1. */
  #first = 1n;
  #waitingBytes = 0;
  /** Refused events that wait for their acknowledgement. */
  readonly #refused = new Set<bigint>();
  #refusedBefore = 0;
  #hasRefused = false;
  #hasAllLines = false;
  #current: PushFrames | undefined;
  /** Resolved by each change, and replaced. */
  #changed = Promise.withResolvers<void>();

  constructor(parts: LineSenderParts) {
    this.#parts = parts;
  }

  /** Resolves when all events are stored or refused; rejects with the error of the lines after that. */
  async run(lines: AsyncIterable<StreamLine>): Promise<void> {
    const reading = this.#read(lines);
    reading.catch(() => undefined);
    const { retry } = this.#parts;
    const retries = new Retries(retry);
    try {
      for (;;) {
        try {
          await this.#converse(retries);
          break;
        } catch (error) {
          if (this.#hasRefused && this.#parts.stopOnRefused) return;
          if (!(error instanceof RpcFailure)) throw error;
          const isOwn = error.reason === "STREAM_REPLACED"; // A late opening of this command.
          if (!isOwn && !retries.mayRepeat(error)) throw error;
          await retries.pauseAfter(error);
        }
      }
      await reading;
    } finally {
      this.#hasAllLines = true;
      this.#signalChange();
    }
  }

  async #read(lines: AsyncIterable<StreamLine>): Promise<void> {
    try {
      for await (const line of lines) {
        this.#waiting.push(line);
        this.#waitingBytes += line.payload.length;
        this.#signalChange();
        while (!this.#hasAllLines && this.#isFull) await this.#changed.promise;
        if (this.#hasAllLines) return;
      }
    } finally {
      this.#hasAllLines = true;
      this.#signalChange();
    }
  }

  get #isFull(): boolean {
    return this.#waiting.length >= WAITING_EVENTS_MAX || this.#waitingBytes >= WAITING_BYTES_MAX;
  }

  async #converse(retries: Retries): Promise<void> {
    const { client, sessionId, epoch: producerEpoch, stopOnRefused } = this.#parts;
    const frames: PushFrames = await client.converse(ledger.pushSessionEvents);
    this.#current = frames;
    try {
      const open = { sessionId, producerEpoch, stopOnRefused };
      frames.send({ frame: { case: "open", value: open } });
      for await (const { frame } of frames.responses) {
        retries.succeeded();
        if (frame.case === "opened") {
          this.#settle(frame.value.lastClientSeq, 0n, Number(frame.value.refused));
          void this.#send(frames);
        }
        if (frame.case === "committed")
          this.#settle(frame.value.lastClientSeq, frame.value.lastSeq);
        if (frame.case === "refused")
          this.#refuse(frame.value.clientSeq, failureOfStatus(frame.value.status));
      }
      if (!this.#hasAllLines || this.#waiting.length > 0)
        throw new RpcFailure("UNAVAILABLE", "the stream ended");
    } finally {
      this.#current = undefined;
      this.#signalChange();
      frames.cancel();
    }
  }

  async #send(frames: PushFrames): Promise<void> {
    let next = this.#first;
    while (this.#current === frames) {
      const events = this.#frameFrom(Number(next - this.#first));
      if (events.length === 0 && this.#hasAllLines) return frames.end();
      if (events.length === 0) {
        await this.#changed.promise;
        continue;
      }
      const batch = {
        firstClientSeq: next,
        events: events.map(({ eventType, payload }) => ({ eventType, payload })),
      };
      next += BigInt(events.length);
      if (!frames.send({ frame: { case: "batch", value: batch } })) await frames.drained();
    }
  }

  #frameFrom(start: number): readonly StreamLine[] {
    let bytes = 0;
    let end = start;
    for (; end < this.#waiting.length && end - start < FRAME_EVENTS_MAX; end += 1) {
      bytes += this.#waiting[end]?.payload.length ?? 0;
      if (bytes > FRAME_BYTES_MAX && end > start) break;
    }
    return this.#waiting.slice(start, end);
  }

  /** `refusedOfAll`: the number of all refused events, as an opened stream tells. */
  #settle(lastClientSeq: bigint, lastSeq: bigint, refusedOfAll = 0): void {
    const count = Number(lastClientSeq - this.#first + 1n);
    if (count <= 0) return;
    const settled = this.#waiting.splice(0, count);
    const last = settled.at(-1);
    // Later events would be lost silently.
    if (last === undefined || settled.length < count)
      throw new RpcFailure("INTERNAL", "the service acknowledged events that were not sent");
    let refused = 0;
    for (let seq = this.#first; seq <= lastClientSeq; seq += 1n)
      refused += this.#refused.delete(seq) ? 1 : 0;
    // A broken stream may have lost their reports.
    const unseen = Math.max(0, refusedOfAll - this.#refusedBefore - refused);
    for (let n = 0; n < unseen; n += 1) this.#parts.refused(last, UNSEEN);
    refused += unseen;
    this.#refusedBefore += refused;
    this.#first = lastClientSeq + 1n;
    for (const { payload } of settled) this.#waitingBytes -= payload.length;
    this.#parts.committed(last, count - refused, lastSeq);
    this.#signalChange();
  }

  #refuse(clientSeq: bigint, failure: RpcFailure): void {
    const line = this.#waiting[Number(clientSeq - this.#first)];
    if (line === undefined || this.#refused.has(clientSeq)) return;
    this.#refused.add(clientSeq);
    this.#hasRefused = true;
    this.#parts.refused(line, failure);
  }

  #signalChange(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
