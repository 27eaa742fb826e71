/**
 * A statement that the database refuses, as after a change of the tables by hand, ends all that wait for its
 * rows: no other try would mend it, and a silent watch would look like a quiet session.
 */
import { afterEach, beforeEach, expect, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { withSql } from "../support/embedded-fixture.ts";
import { RpcFailure } from "../support/grpc-client.ts";
import { failureOf, newSession } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { getTranscript, pushSessionEvent, watchEvents, watchSessionEvents, watchSessions } =
  SessionService.method;

const { service, client } = useService({});

const EVENT = {
  eventType: "CUSTOM",
  payload: JSON.stringify({ type: "CUSTOM", name: "n", value: 1 }),
};

/** Renames a column, so that the statements that name it are refused, until the end of the test. */
let renamed: readonly [table: string, column: string] | undefined;
async function rename(table: string, column: string): Promise<void> {
  renamed = [table, column];
  await withSql(service.databaseUrl, async (sql) => {
    await sql`alter table ${sql(table)} rename column ${sql(column)} to moved_away`;
  });
}
afterEach(async () => {
  if (renamed === undefined) return;
  const [table, column] = renamed;
  renamed = undefined;
  await withSql(service.databaseUrl, async (sql) => {
    await sql`alter table ${sql(table)} rename column moved_away to ${sql(column)}`;
  });
});

let sessionId: string;
beforeEach(async () => {
  sessionId = newSession();
  await client.unary(pushSessionEvent, { sessionId, ...EVENT });
});

/** Reads until the watch is live; then its end. */
async function liveThenEnd(
  watch: AsyncIterable<{ readonly watchState: WatchState }>,
): Promise<{ readonly end: Promise<unknown> }> {
  const messages = watch[Symbol.asyncIterator]();
  for (;;) {
    const { value, done } = await messages.next();
    if (done === true) throw new Error("the watch ended before it was live");
    if (value.watchState === WatchState.LIVE) break;
  }
  const drained = async (): Promise<void> => {
    while ((await messages.next()).done !== true);
  };
  return { end: failureOf(drained()) };
}

const INTERNAL = { code: "INTERNAL", reason: "INTERNAL" };

test("the watches of a session, when the rows behind its head cannot be read", async () => {
  const { end } = await liveThenEnd(
    client.serverStream(watchSessionEvents, { sessionId, stateFrames: true }),
  );
  await rename("session_events", "payload");
  await withSql(service.databaseUrl, async (sql) => {
    await sql`update sessions set event_seq = event_seq + 1 where id = ${sessionId}`;
  });
  expect(await end).toMatchObject(INTERNAL);
  expect(service.log.join("\n")).toMatch(/live read failed/);
});

test("a watch that starts with rows of the table", async () => {
  await rename("session_events", "payload");
  const drained = async (): Promise<void> => {
    for await (const _ of client.serverStream(watchSessionEvents, {
      sessionId,
      stateFrames: true,
    }));
  };
  expect(await failureOf(drained())).toMatchObject(INTERNAL);
});

test("all watches, when the heads of their sessions cannot be read", async () => {
  const { end } = await liveThenEnd(
    client.serverStream(watchSessionEvents, { sessionId, stateFrames: true }),
  );
  await rename("sessions", "event_seq");
  expect(await end).toMatchObject(INTERNAL);
});

test("a feed, whose page cannot be read", async () => {
  const { end } = await liveThenEnd(client.serverStream(watchEvents, {}));
  await rename("session_events", "payload");
  await withSql(service.databaseUrl, async (sql) => {
    await sql`update sessions set event_seq = event_seq + 1 where id = ${sessionId}`;
    await sql`insert into session_events (session_id, seq, id, event_type, moved_away, created_at, recorded_at)
      select ${sessionId}, 2, gen_random_uuid(), event_type, moved_away, now(), clock_timestamp()
      from session_events where session_id = ${sessionId} limit 1`;
  });
  expect(await end).toMatchObject(INTERNAL);
});

test("a watch of sessions", async () => {
  const { end } = await liveThenEnd(client.serverStream(watchSessions, { stateFrames: true }));
  await rename("sessions", "changed_at");
  expect(await end).toMatchObject(INTERNAL);
});

test("a transcript, long before its deadline", async () => {
  await rename("session_events", "payload");
  const asked = client.unary(getTranscript, { sessionId }, { deadlineMs: 60_000 });
  const failure = await failureOf(asked);
  expect(failure).toBeInstanceOf(RpcFailure);
  expect(failure).toMatchObject(INTERNAL);
});
