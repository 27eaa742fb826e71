/**
 * Commands of a client in the process of the test, for tests of their effects and output. Starting a
 * process takes far longer than most commands do; one test of each command starts one
 * (test/e2e/cli.test.ts, cli-export.test.ts).
 */
import { Readable, Writable } from "node:stream";
import { runCli } from "../../src/cli/program.ts";
import { loadClientConfig, loadConfig } from "../../src/config/config.ts";
import type { CommandResult } from "./service-process.ts";

type Environment = Readonly<Record<string, string>>;

class Collected extends Writable {
  readonly #chunks: Buffer[] = [];

  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }
}

/** Runs a command to its end, as `runCommand` of service-process.ts does in a process. */
export async function runHere(
  args: readonly string[],
  options: { readonly env?: Environment; readonly input?: string | Uint8Array } = {},
): Promise<CommandResult> {
  const [stdout, stderr] = [new Collected(), new Collected()];
  const { signal } = new AbortController();
  const exitCode = await runWith(args, { ...options, stdout, stderr, signal });
  return { exitCode, stdout: stdout.text, stderr: stderr.text };
}

/** The same, with the streams and the signal of the test. */
export function runWith(
  args: readonly string[],
  options: {
    readonly env?: Environment;
    readonly input?: string | Uint8Array;
    readonly stdout: Writable;
    readonly stderr: Writable;
    readonly signal: AbortSignal;
  },
): Promise<number> {
  const { env = {}, input = "", stdout, stderr, signal } = options;
  const elsewhere = () => Promise.reject(new Error("the command runs in a process of its own"));
  return runCli(args, {
    stdin: Readable.from([Buffer.from(input)]),
    stdout,
    stderr,
    signal,
    loadConfig: () => loadConfig(env),
    loadClientConfig: () => loadClientConfig(env),
    serve: elsewhere,
    migrate: elsewhere,
    retention: elsewhere,
    importUpstream: elsewhere,
  });
}
