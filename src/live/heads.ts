/**
 * Answers where a session stands, which every starting watch asks. At most one query is in flight.
 * All questions that arrive meanwhile share the next query, so a thousand watches that start
 * together cost two or three queries. An answer never comes from a query that began before the
 * question: such an answer could be older than the caller's cursor, or than a commit that was
 * published before the watch existed.
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
