/**
 * The command line stores each line once, whatever gets a SIGKILL while it pushes: the service,
 * PostgreSQL, both, or the command. test/e2e/faults.test.ts has all other clients.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { createLedgerClient } from "@session-ledger/runner/internal/client";
import { endProcess, makeDirectory, runningPostmaster } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { watch } from "../support/history-clients.ts";
import { History, type Row } from "../support/history.ts";
import { eventRowsOf, linesOf, pushLines, pushRun } from "../support/recorded.ts";
import { runCommand, startCommand } from "../support/service-process.ts";
import { ownStreams } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

/** Rows of the first session before each strike. */
const STRIKES = [40n, 120n];

/** Every hand-written stream, so every type of event; lines of one run differ from those of another. */
const LINES = Array.from({ length: 4 }, (_, run) => [
  JSON.stringify({ type: "CUSTOM", name: "run", value: run }),
  ...ownStreams().flatMap(linesOf),
]);

const { service } = useService({ embedded: true });
/** The rows of each run that nothing disturbed. */
let undisturbed: readonly (readonly Row[])[];
beforeAll(async () => {
  undisturbed = await Promise.all(
    LINES.map(async (lines, run) => {
      const sessionId = `undisturbed-${run}`;
      await pushLines(service.grpcAddress, { sessionId, lines });
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

test.each(Object.entries(FAULTS))(
  "SIGKILL of %s while the command line pushes: it stores each line once",
  async (fault, strike) => {
    const restarts = (): number =>
      service.log.filter((line) => line.includes("embedded_postgres_restarted")).length;
    const before = restarts();
    const client = createLedgerClient({ address: service.grpcAddress });
    const sessionIds = LINES.map((_, run) => `${fault.replaceAll(" ", "-")}-${run}`);
    const [first = ""] = sessionIds;
    const reader = new History().reader("watch", { stream: "events", sessionId: first });
    const ended = new AbortController();
    const watching = watch(client, reader, ended.signal);
    const pushing = sessionIds.map((sessionId, run) =>
      pushLines(service.grpcAddress, { sessionId, lines: LINES[run] ?? [] }),
    );
    for (const upTo of STRIKES) {
      await reader.until(upTo);
      await strike();
    }
    const runs = await Promise.all(pushing);
    for (const [run, result] of runs.entries()) {
      expect(result).toMatchObject({ exitCode: 0, summary: { refused: 0 } });
      const rows = await eventRowsOf(service.grpcAddress, sessionIds[run] ?? "");
      expect(shapeOf(rows)).toEqual(shapeOf(undisturbed[run] ?? []));
    }
    ended.abort();
    await watching;
    client.close();
    // The fault is real: the service restarts its server and counts that, or the clients retry.
    const repeated = runs.filter(({ stderr }) => stderr.includes("trying again")).length;
    expect(fault === "PostgreSQL" ? restarts() - before : repeated).toBeGreaterThan(1);
    await eventually(async () => {
      const metrics = await fetch(`http://${service.opsAddress}/metrics`);
      const counter = `session_ledger_postgres_restarts_total ${restarts()}`;
      expect((await metrics.text()).split("\n")).toContain(counter);
    });
  },
);

test("SIGKILL of the command line: the same command continues where the killed one stopped", async () => {
  const { grpcAddress } = service;
  const [lines = []] = LINES;
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
