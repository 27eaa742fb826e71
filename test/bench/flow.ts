/**
 * How much of our code one push, one watch, one streamed event and one turn run through: files, functions and
 * calls, counted by V8 in a service that runs from its sources. Each action runs several times on a
 * warm service; a function counts if it ran every time, with its smallest count, so that timers and
 * probes which ran beside the action do not count. No figure depends on the speed of the machine.
 */
import { randomUUID } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { Compression } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import { claim, finish, say } from "../support/turns.ts";
import type { Bench, Findings } from "./bench.ts";
import { type Ledger, startLedger } from "./servers.ts";

const ROOT = new URL("../../", import.meta.url).href;
const WARM_TURNS = 3;
const TURNS = 5;
const LOOK_EVERY_MS = 10;
const ANNOUNCING = "src/live/hints/transport.ts send ";

const takenSchema = z.array(
  z.object({ url: z.string(), name: z.string(), at: z.number(), calls: z.number() }),
);

export async function benchFlow(bench: Bench): Promise<Findings> {
  const directory = await mkdtemp(join(tmpdir(), "session-ledger-flow-"));
  bench.undo.defer(() => rm(directory, { recursive: true, force: true }));
  const file = join(directory, "flow.jsonl");
  const ledger = await startLedger(bench, {
    fromSources: true,
    nodeArgs: ["--import", new URL("./flow-probe.ts", import.meta.url).href],
    // V8 counts calls of cached code less precisely.
    env: { FLOW_FILE: file, NODE_DISABLE_COMPILE_CACHE: "1" },
  });
  const client = new RpcClient(ledger.address);
  bench.undo.defer(() => client.close());
  let taken = 0;

  /** The calls of each function of ours since the last time. */
  async function take(): Promise<ReadonlyMap<string, number>> {
    process.kill(ledger.pid, "SIGUSR2");
    taken += 1;
    for (;;) {
      bench.signal.throwIfAborted();
      const lines = (await readFile(file, "utf8").catch(() => "")).split("\n");
      const line = lines[taken - 1];
      if (lines.length > taken && line !== undefined) return callsIn(line);
      await delay(LOOK_EVERY_MS);
    }
  }

  async function flowOf(action: () => Promise<unknown>): Promise<Findings> {
    for (let turn = 0; turn < WARM_TURNS; turn += 1) await action();
    // In its first second a service announces all commits: it does not know yet that no other one listens.
    for (let isAnnounced = true; isAnnounced; ) {
      await take();
      await action();
      isAnnounced = [...(await take()).keys()].some((name) => name.startsWith(ANNOUNCING));
    }
    let calls: ReadonlyMap<string, number> | undefined;
    for (let turn = 0; turn < TURNS; turn += 1) {
      await take();
      await action();
      const now = await take();
      calls = calls === undefined ? now : smallest(calls, now);
    }
    return summary(calls ?? new Map());
  }

  const findings: Record<string, Findings> = {};
  for (const [name, action] of Object.entries(await actionsOn(bench, ledger, client))) {
    findings[name] = await flowOf(action);
    const { files, functions, calls } = findings[name];
    bench.progress(
      `${name}: ${String(files)} files, ${String(functions)} functions, ${String(calls)} calls`,
    );
  }
  return findings;
}

async function actionsOn(
  bench: Bench,
  ledger: Ledger,
  client: RpcClient,
): Promise<Readonly<Record<string, () => Promise<unknown>>>> {
  const eventType = "TEXT_MESSAGE_CONTENT";
  const payload = JSON.stringify({ type: eventType, messageId: "m1", delta: "x".repeat(540) });
  const pushed = `bench-${randomUUID()}`;
  const push = (sessionId: string): Promise<unknown> =>
    client.unary(SessionService.method.pushSessionEvent, { sessionId, eventType, payload });

  const watched = `bench-${randomUUID()}`;
  await push(watched);
  const watch = async (): Promise<void> => {
    const request = { sessionId: watched, snapshotOnly: true };
    for await (const row of client.serverStream(
      SessionService.method.watchSessionEvents,
      request,
    )) {
      void row;
    }
  };

  const streamed = client.bidiStream(SessionService.method.pushSessionEvents);
  bench.undo.defer(() => streamed.cancel());
  const answers = streamed[Symbol.asyncIterator]();
  const compression = Compression.OFF;
  streamed.send({
    frame: {
      case: "open",
      value: { sessionId: `bench-${randomUUID()}`, producerEpoch: 1n, compression },
    },
  });
  await answers.next();
  let clientSeq = 0n;
  const stream = async (): Promise<void> => {
    clientSeq += 1n;
    const value = { firstClientSeq: clientSeq, events: [{ eventType, payload }] };
    streamed.send({ frame: { case: "batch", value } });
    await answers.next();
  };

  const turned = `bench-${randomUUID()}`;
  let runs = 0;
  const turn = async (): Promise<void> => {
    runs += 1;
    const runId = `r${runs}`;
    await say(client, turned, "a message");
    await claim(client, { sessionId: turned, runId });
    await finish(client, turned, runId);
  };

  await ledger.witness.rowsOf([watched]);
  return {
    "unary push": () => push(pushed),
    "watch of one row": watch,
    "streamed event": stream,
    "message, claim, end": turn,
  };
}

function callsIn(line: string): ReadonlyMap<string, number> {
  const calls = new Map<string, number>();
  for (const { url, name, at, calls: count } of takenSchema.parse(JSON.parse(line))) {
    // V8 lists a module itself as a function without a name at 0.
    if (!isOurs(url) || at === 0) continue;
    calls.set(`${url.slice(ROOT.length)} ${name === "" ? "(anonymous)" : name} ${at}`, count);
  }
  return calls;
}

function isOurs(url: string): boolean {
  return ["src/", "packages/", "gen/"].some((folder) => url.startsWith(`${ROOT}${folder}`));
}

function smallest(
  one: ReadonlyMap<string, number>,
  other: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  const both = new Map<string, number>();
  for (const [name, count] of one) {
    const also = other.get(name);
    if (also !== undefined) both.set(name, Math.min(count, also));
  }
  return both;
}

function summary(calls: ReadonlyMap<string, number>): Findings {
  const byFile = Object.groupBy([...calls], ([name]) => name.split(" ", 1)[0] ?? "");
  const files = Object.entries(byFile).map(([path, functions = []]) => ({
    path,
    functions: functions.length,
    calls: functions.reduce((sum, [, count]) => sum + count, 0),
  }));
  return {
    files: files.length,
    functions: calls.size,
    calls: files.reduce((sum, file) => sum + file.calls, 0),
    byFile: files.toSorted((a, b) => b.calls - a.calls),
  };
}
