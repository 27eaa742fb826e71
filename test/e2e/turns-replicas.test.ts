/**
 * Turns across two services on one PostgreSQL, with the poll a minute away: runners race, wait on
 * another service than the one that takes the message, and services and database are killed.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { cleanUp, endProcess, runningPostmaster, withSql } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { failureOf, newSession, push, rowsOf } from "../support/pushing.ts";
import { type OwnServer, Replicas, startServer } from "../support/replicas.ts";
import { claim, finish, say, standing, textsOf } from "../support/turns.ts";

const MESSAGES = 40;
const WAIT = { seconds: 60n };

let database: OwnServer;
let replicas: Replicas;
beforeAll(async () => {
  database = await startServer();
  replicas = await Replicas.start(database.server.url);
});
afterAll(async () => {
  await replicas.stop();
  await database.stop();
  await cleanUp();
});

function clientOf(index: number): RpcClient {
  return new RpcClient(() => replicas.at(index).grpcAddress);
}

/** Repeats a call that a kill has cut off. */
async function again<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof RpcFailure && error.code === "UNAVAILABLE")) throw error;
    }
  }
}

test("of runners that race on both services, each message gets to one, in order", async () => {
  const clients = [clientOf(0), clientOf(1)] as const;
  const sessionId = newSession();
  const texts = Array.from({ length: MESSAGES }, (_, at) => String(at));
  const ended = new AbortController();
  const turns: (readonly string[])[] = [];
  const saying = async (): Promise<void> => {
    for (const [at, text] of texts.entries())
      await say(clients[at % 2 === 0 ? 0 : 1], sessionId, text);
  };
  const running = Array.from({ length: 6 }, async (_, runner) => {
    const client = clients[runner % 2 === 0 ? 0 : 1];
    for (let turn = 0; !ended.signal.aborted; turn += 1) {
      const runId = `r${runner}-${turn}`;
      const asked = { sessionId, runId, wait: WAIT, messagesMax: 1 + (turn % 5) };
      try {
        const taken = await claim(client, asked, { signal: ended.signal });
        turns.push(textsOf(taken));
        await push(client, "events", { sessionId, producerEpoch: taken.producerEpoch });
        await finish(client, sessionId, runId);
      } catch (error) {
        if (!(error instanceof RpcFailure)) throw error;
        if (error.reason !== "RUN_OPEN" && !ended.signal.aborted) throw error;
      }
      if (turns.flat().length === MESSAGES) ended.abort();
    }
  });
  await Promise.all([saying(), ...running]);
  expect(turns.flat()).toEqual(texts);
  const rows = await rowsOf(clients[0], "events", sessionId);
  const marks = rows.map(({ eventType }) => eventType).filter((type) => type.startsWith("RUN"));
  expect(marks).toEqual(turns.flatMap(() => ["RUN_STARTED", "RUN_FINISHED"]));
  expect(await standing(clients[1], sessionId)).toEqual([BigInt(MESSAGES), 0n, undefined]);
  for (const client of clients) client.close();
});

test("a claim that waits is woken by a message on the other service", async () => {
  const [one, other] = [clientOf(0), clientOf(1)];
  const sessionId = newSession();
  const turn = claim(one, { sessionId, runId: "r1", wait: WAIT });
  await expect.poll(() => replicas.metric(0, /^session_ledger_claims_waiting /)).toBe(1);
  await push(other, "messages", { sessionId, eventType: "assistant", payload: "no" });
  await say(other, sessionId, "one");
  expect(textsOf(await turn)).toEqual(["one"]);
  await expect.poll(() => replicas.metric(0, /^session_ledger_claims_waiting /)).toBe(0);
  for (const client of [one, other]) client.close();
});

test("a message outlives a kill of the services and PostgreSQL, before its turn and after it", async () => {
  const [one, other] = [clientOf(0), clientOf(1)];
  const sessionId = newSession();
  await say(one, sessionId, "one");
  endProcess(await runningPostmaster(database.dataDir));
  await eventually(() => withSql(database.server.url, (sql) => sql`select 1`));
  await replicas.replace(0);
  const turn = await again(() => claim(one, { sessionId, runId: "r1" }));
  await replicas.replace(0);
  const repeated = await again(() => claim(other, { sessionId, runId: "r1" }));
  expect([textsOf(turn), textsOf(repeated)]).toEqual([["one"], ["one"]]);
  expect(repeated.runStarted?.id).toBe(turn.runStarted?.id);
  expect(await again(() => rowsOf(one, "events", sessionId))).toHaveLength(1);
  expect((await failureOf(claim(other, { sessionId, runId: "r2" }))).reason).toBe("RUN_OPEN");
  for (const client of [one, other]) client.close();
});

test("a stop of the service ends the claims that wait, and does not wait for them", async () => {
  const client = clientOf(1);
  const turn = failureOf(claim(client, { sessionId: newSession(), runId: "r1", wait: WAIT }));
  await expect.poll(() => replicas.metric(1, /^session_ledger_claims_waiting /)).toBe(1);
  const { log } = replicas.at(1);
  await replicas.at(1).stop();
  expect(await turn).toMatchObject({
    code: "UNAVAILABLE",
    reason: "SHUTTING_DOWN",
    retryAfterMs: 500,
  });
  expect(log.filter((line) => line.includes("calls cut at the stop limit"))).toEqual([]);
  client.close();
});
