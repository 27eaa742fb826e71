/**
 * Where a session stands, asked by every watch that begins. At most one query is in flight; all who
 * ask meanwhile share the next one, so a thousand watches that begin together cost two or three
 * queries. Nobody is given an answer whose query began before the question: it could be older than
 * a cursor in the caller's hand, or than a commit that was published before the watch was there.
 */
import type { SessionHead } from "../store/rows.ts";
import type { Reads } from "./reads.ts";

type Answer = SessionHead | undefined;

export class Heads {
  readonly #reads: Reads;
  readonly #idsMax: number;
  readonly #asked = new Map<string, PromiseWithResolvers<Answer>>();
  #running = false;

  constructor(reads: Reads, limits: { readonly headIdsMax: number }) {
    this.#reads = reads;
    this.#idsMax = limits.headIdsMax;
  }

  /** `undefined` when there is no such session. */
  ask(sessionId: string): Promise<Answer> {
    let question = this.#asked.get(sessionId);
    if (question === undefined) {
      question = Promise.withResolvers<Answer>();
      this.#asked.set(sessionId, question);
    }
    if (!this.#running) void this.#run();
    return question.promise;
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#asked.size > 0) {
      const questions = [...this.#asked].slice(0, this.#idsMax);
      for (const [sessionId] of questions) this.#asked.delete(sessionId);
      try {
        const heads = await this.#reads.heads(questions.map(([sessionId]) => sessionId));
        for (const [sessionId, { resolve }] of questions) resolve(heads.get(sessionId));
      } catch (error) {
        for (const [, { reject }] of questions) reject(error);
      }
    }
    this.#running = false;
  }
}
