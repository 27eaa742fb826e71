/**
 * Two services on one PostgreSQL with wake-ups. The poll comes once a minute, so a row that arrives
 * sooner was announced.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { hearEachOther, Pair } from "../support/pair.ts";

let database: OpenDatabase;

beforeAll(async () => {
  database = await openDatabase();
});

afterAll(async () => {
  await database.stop();
  await cleanUp();
});

test("NOTIFY without any setting brings rows and deletions of the other service at once", async () => {
  await using pair = await Pair.started(database.url, {});
  await hearEachOther(pair, "by-notify");
  expect(await pair.metric(1, "wake_ups_connected")).toBe("session_ledger_wake_ups_connected 1");
});

test("the poll alone brings them later", async () => {
  await using pair = await Pair.started(database.url, {
    LISTEN_DATABASE_URL: "off",
    HEAD_POLL_INTERVAL_MS: "200",
  });
  await hearEachOther(pair, "by-poll");
  expect(await pair.metric(1, "wake_ups_connected")).toBeUndefined();
});
