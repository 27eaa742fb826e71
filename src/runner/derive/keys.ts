/**
 * Idempotency keys of derived messages: `{runId}:{message type}:{construct id}:{n}`, where n
 * counts, from 1, the messages of that run, type and construct. The keys depend only on the events.
 * So a restarted runner that replays its run pushes each message under the same key, and the
 * service keeps one.
 *
 *   longer than a key may be, or holding     `sha256:` and the digest of the whole
 *   what a proto string cannot
 *   a message outside of every run           `:{type}:{id}:{n}:{digest of the payload}`: there is
 *                                            nothing that tells two runs apart, and what both number
 *                                            alike but say differently must not be one message
 */
import { createHash } from "node:crypto";

/** The contract's limit of an idempotency key. */
const KEY_BYTES_MAX = 128;
/**
 * Bases that are counted separately in one run: at most 128 bytes each, plus the map's overhead.
 */
const COUNTED_MAX = 10_000;
/** 64 bits of the content, in addition to all other parts of the key, which must be equal too. */
const DIGEST_HEX = 16;

interface Message {
  readonly eventType: string;
  readonly constructId: string;
  readonly payload: string;
}

export class MessageKeys {
  readonly #counts = new Map<string, number>();
  #runId: string | undefined;
  #total = 0;

  /** A run that continues under the same id continues its counts. */
  beginRun(runId: string | undefined): void {
    if (runId !== undefined && runId === this.#runId) return;
    this.#runId = runId;
    this.#counts.clear();
    this.#total = 0;
  }

  next({ eventType, constructId, payload }: Message): string {
    const base = `${this.#runId ?? ""}:${eventType}:${constructId}`;
    const key = `${base}:${this.#count(base)}`;
    return fitted(this.#runId === undefined ? `${key}:${digest(payload, DIGEST_HEX)}` : key);
  }

  /**
   * Above the limit of separate counts, n is the number of all messages of the run: higher than
   * every earlier n, and the same in a replay.
   */
  #count(base: string): number {
    this.#total += 1;
    const name = fitted(base);
    const count = (this.#counts.get(name) ?? 0) + 1;
    if (count === 1 && this.#counts.size >= COUNTED_MAX) return this.#total;
    this.#counts.set(name, count);
    return count;
  }
}

function fitted(key: string): string {
  const isPlain = key.isWellFormed() && !key.includes("\0");
  if (isPlain && Buffer.byteLength(key) <= KEY_BYTES_MAX) return key;
  return `sha256:${digest(key)}`;
}

function digest(text: string, hexDigits?: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, hexDigits);
}
