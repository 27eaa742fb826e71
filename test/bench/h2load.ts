/** One run of load: a process of h2load a connection, all at once, and what their logs say. */
import { spawn } from "node:child_process";
import { closeSync, openSync, writeSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Bench } from "./bench.ts";
import type { Body } from "./bodies.ts";
import { framed } from "./grpc-messages.ts";
import { type LoadLog, readLoadLog } from "./h2load-log.ts";
import type { Door } from "./servers.ts";

/** Of the whole run, divided among its connections; or how long each of them goes on. */
export type Amount = { readonly calls: number } | { readonly seconds: number };

const PROGRAM = "h2load";
/**
 * Short against the time a call takes under load, so that the calls in flight of one connection are of
 * different sessions. How many sessions a run has really written to is among its figures.
 */
const TURN_INTERVAL_MS = 1;

const PUSH_PATH = `/${SessionService.typeName}/${SessionService.method.pushSessionEvent.name}`;

export async function runH2load(
  bench: Bench,
  options: {
    readonly address: string;
    readonly door?: Pick<Door, "token">;
    /** One a connection. */
    readonly bodies: readonly Body[];
    readonly inFlightEach: number;
    readonly amount: Amount;
  },
): Promise<LoadLog> {
  const { address, door, bodies, inFlightEach, amount } = options;
  const authorization = door === undefined ? [] : [`--header=authorization: Bearer ${door.token}`];
  const scheme = door === undefined ? "http" : "https"; // It trusts any certificate.
  bench.signal.throwIfAborted();
  const directory = await mkdtemp(join(tmpdir(), "session-ledger-load-"));
  const pathOf = (connection: number, what: "body" | "log"): string =>
    join(directory, `${connection}.${what}`);
  try {
    await Promise.all(bodies.map((body, n) => writeFile(pathOf(n, "body"), framed(body.message))));
    const stopTurning = turnBodies(bodies, (n) => pathOf(n, "body"));
    try {
      await Promise.all(
        bodies.map((_, n) =>
          spawnH2load(bench, [
            "--clients=1",
            `--max-concurrent-streams=${inFlightEach}`,
            amountArgument(amount, bodies.length),
            `--data=${pathOf(n, "body")}`,
            `--log-file=${pathOf(n, "log")}`,
            "--header=content-type: application/grpc",
            "--header=te: trailers",
            ...authorization,
            `${scheme}://${address}${PUSH_PATH}`,
          ]),
        ),
      );
    } finally {
      stopTurning();
    }
    const logs = bodies.map((_, n) => readFile(pathOf(n, "log"), "utf8"));
    return readLoadLog(await Promise.all(logs));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function amountArgument(amount: Amount, connections: number): string {
  return "seconds" in amount
    ? `--duration=${Math.round(amount.seconds * 1_000)}ms`
    : `--requests=${Math.ceil(amount.calls / connections)}`;
}

/** Overwrites the turning field of each body until it is told to stop. */
function turnBodies(bodies: readonly Body[], pathOf: (connection: number) => string): () => void {
  const files = bodies.flatMap(({ turning }, n) =>
    turning === undefined ? [] : [{ turning, file: openSync(pathOf(n), "r+") }],
  );
  if (files.length === 0) return () => undefined;
  let tick = 0;
  const timer = setInterval(() => {
    tick += 1;
    for (const { turning, file } of files) writeSync(file, turning.textAt(tick), turning.offset);
  }, TURN_INTERVAL_MS);
  return () => {
    clearInterval(timer);
    for (const { file } of files) closeSync(file);
  };
}

async function spawnH2load(bench: Bench, args: readonly string[]): Promise<void> {
  const child = spawn(PROGRAM, args, {
    stdio: ["ignore", "pipe", "pipe"],
    signal: bench.signal,
    killSignal: "SIGKILL",
  });
  const ended = Promise.withResolvers<number | null>();
  child.once("error", ended.reject).once("close", ended.resolve);
  try {
    const [stdout, stderr, code] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      ended.promise,
    ]);
    if (code !== 0) throw new Error(`${PROGRAM} ended with ${code}: ${stdout}${stderr}`);
  } catch (error) {
    if (!isMissing(error)) throw error;
    throw new Error("h2load is not installed (Debian: apt install nghttp2-client)", {
      cause: error,
    });
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
