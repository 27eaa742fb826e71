/** A driver as a process: commands go in as JSON lines, and each is answered by one line, in order. */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { z } from "zod";
import { fromJsonLines } from "@session-ledger/runner";
import { FEATURES, type Feature } from "./cases.ts";

const object = z.record(z.string(), z.unknown());
const lineSchema = z.object({
  id: z.int(),
  answer: object.optional(),
  error: z
    .object({ code: z.string(), reason: z.string().default(""), message: z.string() })
    .optional(),
});
type Fields = Readonly<Record<string, unknown>>;

const helloSchema = z.object({ features: z.array(z.enum(FEATURES)) });

/** The error of a command. */
export class DriverError extends Error {
  readonly answered: Fields;

  constructor(error: NonNullable<z.infer<typeof lineSchema>["error"]>) {
    super(`${error.code} ${error.reason}: ${error.message}`);
    this.answered = error;
  }
}

export class Driver {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #waiting = new Map<number, PromiseWithResolvers<Fields>>();
  #count = 0;

  constructor([command = "", ...args]: readonly string[]) {
    this.#child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.#child.stdin.on("error", () => undefined); // It has ended, and that is reported.
    this.#child.on("error", (error) => this.#end(error));
    void this.#read().then(
      () => this.#end(new Error("the driver has ended")),
      (error: unknown) => this.#end(error),
    );
  }

  /** The first command of a case. */
  async hello(address: string, session: string): Promise<readonly Feature[]> {
    return helloSchema.parse(await this.do("hello", { address, session })).features;
  }

  /** Rejects with a DriverError. */
  do(name: string, fields: Fields = {}): Promise<Fields> {
    this.#count += 1;
    const waiting = Promise.withResolvers<Fields>();
    this.#waiting.set(this.#count, waiting);
    this.#child.stdin.write(`${JSON.stringify({ id: this.#count, do: name, ...fields })}\n`);
    return waiting.promise;
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGKILL");
    await once(this.#child, "exit");
  }

  async #read(): Promise<void> {
    for await (const { value } of fromJsonLines(this.#child.stdout)) {
      const { id, answer = {}, error } = lineSchema.parse(value);
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(answer);
      else waiting?.reject(new DriverError(error));
    }
  }

  #end(error: unknown): void {
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
  }
}
