import type { Texts } from "../../redaction/redactor.ts";
import type { OpenedStream } from "../../store/streams.ts";

/** Sessions of which something is remembered; the one that was left the longest ago is forgotten. */
const SESSIONS_MAX = 1_024;

interface Left {
  readonly epoch: bigint;
  readonly lastClientSeq: bigint;
  readonly texts: Texts;
}

/**
 * Secrets that had begun when a push stream ended, so that the rest of them is known for what it is
 * when the client comes back here. It has to go on exactly where it was: what it sends again would be
 * read twice. Nothing outlives the process: the other half of a secret is not known to another one.
 */
export class OpenTexts {
  readonly #left = new Map<string, Left>();

  leave(sessionId: string, left: Omit<Left, "texts">, texts: Texts | undefined): void {
    this.#left.delete(sessionId);
    if (texts === undefined) return;
    this.#left.set(sessionId, { ...left, texts });
    const [oldest] = this.#left.keys();
    if (this.#left.size > SESSIONS_MAX && oldest !== undefined) this.#left.delete(oldest);
  }

  take(
    sessionId: string,
    opened: Pick<OpenedStream, "epoch" | "lastClientSeq">,
  ): Texts | undefined {
    const left = this.#left.get(sessionId);
    this.#left.delete(sessionId);
    const isNext = left?.epoch === opened.epoch && left.lastClientSeq === opened.lastClientSeq;
    return isNext ? left.texts : undefined;
  }
}
