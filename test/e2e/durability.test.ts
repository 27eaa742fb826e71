/**
 * What was acknowledged is there, once, whatever is killed in the middle. Several runs of the command
 * line and several writers push at once, watches follow; when they are under way something gets a
 * SIGKILL, and again later. All go on by themselves: the command line and the writers repeat what has
 * a key, watches are opened again at their cursor. At the end the history has no problem, and the
 * streams are row for row what an undisturbed run makes of them.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { createLedgerClient, type LedgerClient } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { endProcess, makeDirectory, runningPostmaster } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { problemsOf, witnessIn } from "../support/history-check.ts";
import { poll, send, watch } from "../support/history-clients.ts";
import { History, plan, PUSH_KINDS, type Row } from "../support/history.ts";
import { eventRowsOf, linesOf, pushLines, type PushRun, pushRun } from "../support/recorded.ts";
import { runCommand, startCommand } from "../support/service-process.ts";
import { ownStreams } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

const RUNS = 4;
const WRITERS = 8;
const PUSHES_EACH = 60;
/** Of the first session that is watched: where the faults strike. */
const STRIKES = [40n, 120n];

const { service } = useService({ embedded: true });
/** The rows of each run that nothing disturbed. */
let undisturbed: readonly (readonly Row[])[];
beforeAll(async () => {
  undisturbed = await Promise.all(
    Array.from({ length: RUNS }, async (_, run) => {
      const sessionId = `undisturbed-${run}`;
      await pushLines(service.grpcAddress, { sessionId, lines: linesOfRun(run) });
      return eventRowsOf(service.grpcAddress, sessionId);
    }),
  );
});

const FAULTS: Readonly<Record<string, () => Promise<void>>> = {
  "the service": async () => {
    await service.kill("SIGKILL");
    await service.restart();
  },
  PostgreSQL: async () => {
    endProcess(await runningPostmaster(service.dataDir));
  },
  "both of them": async () => {
    const postmaster = await runningPostmaster(service.dataDir);
    await service.kill("SIGKILL");
    endProcess(postmaster);
    await service.restart();
  },
};

/** Every hand-written stream, so every type of event; lines of one run differ from those of another. */
function linesOfRun(run: number): readonly string[] {
  const begin = JSON.stringify({ type: "CUSTOM", name: "run", value: run });
  return [begin, ...ownStreams().flatMap(linesOf)];
}

/** One push after the other; what has no key and gets no answer is let go of. */
async function write(
  { history, client }: { readonly history: History; readonly client: LedgerClient },
  { sessionId, writer }: { readonly sessionId: string; readonly writer: number },
): Promise<void> {
  for (let at = 0; at < PUSHES_EACH; at += 1) {
    const kind = PUSH_KINDS[(at + writer) % PUSH_KINDS.length] ?? "event";
    const push = history.push(plan(history, { sessionId, kind, keyed: (at + writer) % 4 !== 0 }));
    try {
      await send({ history, client }, push);
    } catch (error) {
      if (!(error instanceof RpcFailure && error.wasLost)) throw error;
    }
  }
}

/** What one session looks like, apart from what is never the same twice. */
function shapeOf(rows: readonly Row[]): readonly unknown[] {
  return rows.map(({ seq, eventCount, eventType, payload, runId }) => [
    seq,
    eventCount,
    eventType,
    payload,
    runId,
  ]);
}

describe.each(Object.entries(FAULTS))("SIGKILL of %s while all clients push", (fault, strike) => {
  const name = fault.replaceAll(" ", "-");
  const history = new History();
  let runs: readonly PushRun[];

  beforeAll(async () => {
    const client = createLedgerClient({ address: service.grpcAddress });
    const ended = new AbortController();
    const { signal } = ended;
    const sessions = [0, 1, 2].map((at) => `${name}-writers-${at}`);
    const watched = sessions.flatMap((sessionId) =>
      (["events", "messages"] as const).map((stream) =>
        history.reader("watch", { stream, sessionId }),
      ),
    );
    const polled = sessions.map((sessionId) =>
      history.reader("poll", { stream: "events", sessionId }),
    );
    const readers = [
      ...watched.map((reader) => watch(client, reader, signal)),
      ...polled.map((reader) => poll({ history, client }, reader, signal)),
    ];
    const pushing = Array.from({ length: RUNS }, (_, run) =>
      pushLines(service.grpcAddress, { sessionId: `${name}-run-${run}`, lines: linesOfRun(run) }),
    );
    const writing = Array.from({ length: WRITERS }, (_, writer) =>
      write({ history, client }, { sessionId: sessions[writer % sessions.length] ?? "", writer }),
    );
    for (const upTo of STRIKES) {
      await watched[0]?.until(upTo);
      await strike();
    }
    runs = await Promise.all(pushing);
    await Promise.all(writing);
    const { counters } = await witnessIn(service.dataDir, sessions);
    for (const reader of [...watched, ...polled]) {
      await reader.until(counters.get(reader.sessionId)?.[reader.stream] ?? 0n);
    }
    ended.abort();
    await Promise.all(readers);
    client.close();
  });

  test("the fault is real: the service starts its server again, or the clients retry", () => {
    const restarts = service.log.filter((line) => line.includes("embedded_postgres_restarted"));
    const repeated = runs.filter(({ stderr }) => stderr.includes("trying again"));
    const felt = fault === "PostgreSQL" ? restarts : repeated;
    expect(felt.length).toBeGreaterThan(1);
  });

  // Bug: a restart of PostgreSQL was not counted.
  test("restarts of the server are counted", async () => {
    await eventually(async () => {
      const metrics = await fetch(`http://${service.opsAddress}/metrics`);
      const lines = (await metrics.text()).split("\n");
      const restarts = service.log.filter((line) => line.includes("embedded_postgres_restarted"));
      const counter = "session_ledger_postgres_restarts_total";
      expect(lines).toContain(`${counter} ${restarts.length}`);
    });
  });

  test("no acknowledged push is lost or doubled, and no reader saw a gap", async () => {
    const witness = await witnessIn(service.dataDir, history.sessionIds());
    expect(problemsOf(history, witness)).toEqual([]);
  });

  test("the streams equal those of an undisturbed run", async () => {
    for (const [run, result] of runs.entries()) {
      expect(result).toMatchObject({ exitCode: 0, summary: { refused: 0 } });
      const rows = await eventRowsOf(service.grpcAddress, `${name}-run-${run}`);
      expect(shapeOf(rows)).toEqual(shapeOf(undisturbed[run] ?? []));
    }
  });

  test("all pushes sent again with the same keys store nothing", async () => {
    const before = await witnessIn(service.dataDir, history.sessionIds());
    const client = createLedgerClient({ address: service.grpcAddress });
    const keyed = history.pushes.filter(({ sent }) => sent.key !== undefined);
    await Promise.all(keyed.map((push) => send({ history, client }, push)));
    client.close();
    const after = await witnessIn(service.dataDir, history.sessionIds());
    expect(after).toEqual(before);
    expect(problemsOf(history, after)).toEqual([]);
  });
});

test("SIGKILL of the command line: the same command continues where the killed one stopped", async () => {
  const { grpcAddress } = service;
  const lines = linesOfRun(0);
  const file = join(await makeDirectory(), "events.jsonl");
  await writeFile(file, lines.join("\n"));
  const args = ["push", "-s", "client", "-f", file, "-a", grpcAddress, "--json"];
  const client = createLedgerClient({ address: grpcAddress });
  const reader = new History().reader("watch", { stream: "events", sessionId: "client" });
  const ended = new AbortController();
  const watching = watch(client, reader, ended.signal);

  const killed = startCommand(args);
  await reader.until(20n);
  killed.kill("SIGKILL");
  expect(await killed.result).toMatchObject({ exitCode: null });
  const { summary } = pushRun(await runCommand(args));
  expect(summary.deduplicated).toBeGreaterThanOrEqual(20);
  expect(summary.pushed).toBeGreaterThan(0);
  expect(summary.pushed + summary.deduplicated).toBe(lines.length);
  await reader.until(BigInt(lines.length));
  expect(shapeOf(reader.rows)).toEqual(shapeOf(undisturbed[0] ?? []));
  ended.abort();
  await watching;
  client.close();
});
