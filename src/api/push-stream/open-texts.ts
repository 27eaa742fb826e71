import { BoundedMap } from "../../base/bounded-map.ts";
import type { Texts } from "../../redaction/redactor.ts";
import type { OpenedStream } from "../../store/streams.ts";

/** Sessions with remembered texts; the session that was left the longest ago is forgotten first. */
const SESSIONS_MAX = 1_024;

interface Left {
  readonly epoch: bigint;
  readonly lastClientSeq: bigint;
  readonly texts: Texts;
}

/**
 * Secrets that were incomplete when a push stream ended. The rest of such a secret is recognised
 * when the client comes back to this process, if it continues exactly where it stopped: a repeated
 * event would be read twice. Nothing outlives the process: another process does not know the first
 * half of a secret.
 */
export class OpenTexts {
  readonly #left = new BoundedMap<string, Left>(SESSIONS_MAX);

  leave(sessionId: string, left: Omit<Left, "texts">, texts: Texts | undefined): void {
    if (texts === undefined) this.#left.delete(sessionId);
    else this.#left.set(sessionId, { ...left, texts });
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
