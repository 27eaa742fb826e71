/** Exports over a table that a test can change: complete ones, broken ones, and compressed ones. */
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { systemClock } from "@session-ledger/base/clock";
import { describe, expect, test } from "vitest";
import { flatMap, only } from "../../src/base/pull.ts";
import type { CallContext } from "../../src/contract/context.ts";
import { createExportHandlers } from "../../src/handlers/export.ts";
import { LimitUse } from "../../src/observability/limit-metrics.ts";
import { acceptsGzip } from "../../src/http/plumbing/request-checks.ts";
import { callOf } from "../support/callers.ts";
import { SlowTable } from "../support/slow-table.ts";

const context: CallContext = {
  principal: ANONYMOUS,
  signal: new AbortController().signal,
  hasEnded: false,
};

function exporting() {
  const table = new SlowTable();
  const { exportEvents, exportMessages } = createExportHandlers(table, new LimitUse(systemClock));
  return {
    table,
    exportEvents: (id: string, call: CallContext) => flatMap(exportEvents(id, call), only),
    exportMessages: (id: string, call: CallContext) => flatMap(exportMessages(id, call), only),
  };
}

async function seqsOf(rows: AsyncIterable<Iterable<{ readonly seq: bigint }>>) {
  const seqs: bigint[] = [];
  for await (const row of rows) for (const { seq } of row) seqs.push(seq);
  return seqs;
}

describe("an export", () => {
  // Regression: 64 exports of one caller that did not read blocked all other callers.
  test("is refused to a caller with half of them, and not to another caller", async () => {
    const { table, exportEvents } = exporting();
    table.event("s");
    table.event("s");
    const greedy = Array.from({ length: 32 }, () => callOf("greedy"));
    const running = greedy.map((one) => exportEvents("s", one));
    await Promise.all(running.map((rows) => rows.next()));
    const more = exportEvents("s", callOf("greedy")).next();
    await expect(more).rejects.toMatchObject({ reason: "SERVER_BUSY" });
    expect(await seqsOf(exportEvents("s", callOf("other")))).toEqual([1n, 2n]);
    expect(greedy.some(({ signal }) => signal.aborted)).toBe(false);
  });

  test("has the rows that existed at its start, page after page", async () => {
    const { table, exportEvents } = exporting();
    for (let at = 0; at < 1_200; at += 1) table.event("s");
    const rows = exportEvents("s", context);
    const first = await rows.next();
    table.event("s");
    expect([...(first.value ?? [])].map(({ seq }) => seq)).toEqual([1n]);
    expect((await seqsOf(rows)).at(-1)).toBe(1_200n);
    expect(table.pagesRead).toBe(3);
  });

  test("reads nothing before the first request, and stops when its caller leaves", async () => {
    const { table, exportMessages } = exporting();
    for (let at = 0; at < 1_200; at += 1) table.message("s");
    const messages = exportMessages("s", context);
    expect(table.headsRead).toBe(0);
    await messages.next();
    await messages.return(undefined);
    expect(table.pagesRead).toBe(1);
  });

  test("may lack rows that were erased before its start, and breaks off for later ones", async () => {
    const { table, exportEvents } = exporting();
    for (let at = 0; at < 1_200; at += 1) table.event("s");
    table.erase("s", 10n);
    const seqs = await seqsOf(exportEvents("s", context));
    expect([seqs[0], seqs.at(-1), seqs.length]).toEqual([11n, 1_200n, 1_190]);

    const cutShort = exportEvents("s", context);
    await cutShort.next();
    table.erase("s", 900n);
    await expect(seqsOf(cutShort)).rejects.toMatchObject({ reason: "ROW_ERASED" });

    for (let at = 0; at < 1_200; at += 1) table.event("s");
    const emptied = exportEvents("s", context);
    await emptied.next();
    table.erase("s", 2_400n);
    await expect(seqsOf(emptied)).rejects.toMatchObject({ reason: "ROW_ERASED" });
    expect(await seqsOf(exportEvents("s", context))).toEqual([]);
  });

  test("breaks off when its session is deleted", async () => {
    const { table, exportEvents } = exporting();
    for (let at = 0; at < 1_200; at += 1) table.event("s");
    const rows = exportEvents("s", context);
    await rows.next();
    table.deleted.add("s");
    await expect(seqsOf(rows)).rejects.toMatchObject({ reason: "SESSION_DELETED" });
  });

  test("ends when its caller leaves", async () => {
    const { table, exportEvents } = exporting();
    for (let at = 0; at < 1_200; at += 1) table.event("s");
    const controller = new AbortController();
    const { signal } = controller;
    const rows = exportEvents("s", { principal: ANONYMOUS, signal, hasEnded: false });
    await rows.next();
    controller.abort(new Error("left"));
    await expect(rows.next()).rejects.toThrow("left");
  });

  test("is refused while 64 others are open", async () => {
    const { table, exportEvents } = exporting();
    table.event("s");
    table.event("s");
    const running = Array.from({ length: 64 }, () => exportEvents("s", context));
    await Promise.all(running.map((rows) => rows.next()));
    const more = () => seqsOf(exportEvents("s", context));
    await expect(more()).rejects.toMatchObject({
      code: "overloaded",
      reason: "SERVER_BUSY", // Not RATE_LIMITED: no rate is exceeded.
      retryAfterMs: 1_000,
    });
    await running[0]?.return(undefined);
    expect(await more()).toEqual([1n, 2n]);
  });
});

test.each([
  [undefined, false],
  ["", false],
  ["gzip", true],
  ["GZIP", true],
  ["x-gzip", true],
  ["deflate, gzip;q=1.0, *;q=0.5", true],
  ["*", true],
  ["br", false],
  ["gzip;q=0", false],
  ["gzip; q=0.000", false],
  ["*;q=0", false],
  ["gzip;q=0, *", false],
  ["gzip;q=0.5", true],
  ["gzip;q=0.5, identity", false],
  ["identity, gzip", true],
  ["identity;q=0.5, gzip;q=0.4", false],
  ["identity;q=0, *", true],
  ["gzip;q=2", false],
  ["gzip;q=x", false],
  ["gzip;q=0.5;level=9", true],
])("Accept-Encoding: %s allows gzip: %s", (header, expected) => {
  expect(acceptsGzip(header)).toBe(expected);
});
