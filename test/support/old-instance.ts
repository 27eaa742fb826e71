/** An instance of the build of the first schema, by the statements that it sends. */
import { v7 as uuidv7 } from "uuid";
import { pace } from "./eventually.ts";
import { fixtureSql } from "./ledger-fixture.ts";

// Frozen as the migrations are: later builds have others.
const APPEND = `
  select ledger_append(array(select json_array_elements_text($1::text::json)), $2::boolean, $3::boolean,
    $4::text::json, $5::text::json, $6::text::json, $7::text::json)::text as answer`;
const OPEN_STREAM = `
  select ledger_open_stream($1::text, $2::text::bigint, $3::boolean, $4::boolean)::text as answer`;

const SESSION = "of-the-old-build";
const MESSAGE = { s: SESSION, p: "0", ty: "user", pl: "hello" };
const EVENT = { s: SESSION, p: "0", ty: "CUSTOM", pl: '{"type":"CUSTOM","name":"n","value":1}' };
const BYTES = MESSAGE.pl.length + EVENT.pl.length;
const USE = { s: SESSION, m: "1", e: "1", n: 2, b: BYTES, q: 0, w: false, t: { u: 1 } };

const PAUSE_MS = 2;

/** Writes to one session until it is stopped: a message, an event, and the opening of a stream. */
export class OldInstance {
  static readonly SESSION = SESSION;
  pushes = 0;
  #pushed = Promise.withResolvers<void>();
  #isStopped = false;
  readonly #sql;
  readonly #ended: Promise<void>;

  constructor(url: string) {
    this.#sql = fixtureSql(url);
    this.#ended = this.#write();
    this.#ended.catch(() => undefined); // `next` and `stop` report it.
  }

  /** Resolves after a push that began later than the call. */
  async next(): Promise<void> {
    for (let left = 2; left > 0; left -= 1) await Promise.race([this.#pushed.promise, this.#ended]);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#ended;
    await this.#sql.end();
  }

  async #write(): Promise<void> {
    for (; !this.#isStopped; this.pushes += 1) {
      const row = { id: uuidv7(), ca: "2026-11-26T12:00:00.000001Z" };
      const messages = JSON.stringify([{ ...MESSAGE, ...row }]);
      const events = JSON.stringify([{ ...EVENT, ...row, n: 1, w: false, cf: true }]);
      const append = [true, true, null, messages, events, JSON.stringify([USE])];
      const stored = await this.#answer(APPEND, [JSON.stringify([SESSION]), ...append]);
      if (!stored.startsWith(`{"bases" : [["${SESSION}", "${this.pushes}"`))
        throw new Error(stored);
      const opened = await this.#answer(OPEN_STREAM, [SESSION, "0", true, true]);
      if (!opened.startsWith('{"kind" : "opened"')) throw new Error(opened);
      this.#pushed.resolve();
      this.#pushed = Promise.withResolvers();
      await pace(PAUSE_MS);
    }
  }

  async #answer(statement: string, values: (string | boolean | null)[]): Promise<string> {
    const [row] = await this.#sql.unsafe(statement, values, { prepare: true });
    return String(row?.["answer"]);
  }
}
