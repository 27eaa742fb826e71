/**
 * Many messages of people while runners work: four clients push into one session over two services, and
 * six runners race for its turns. The rows in the database decide (support/turn-check.ts).
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { readWitness } from "../support/history-check.ts";
import { newSession } from "../support/pushing.ts";
import { Replicas } from "../support/replicas.ts";
import { type ClaimRecord, turnProblemsOf } from "../support/turn-check.ts";
import { claim, emit, finish, say, standing } from "../support/turns.ts";

const WRITERS = 4;
const RUNNERS = 6;
/** As many as may wait. */
const MESSAGES = 1_000;
/** Pushes of one writer at a time, each a call of its own. */
const AT_ONCE = 50;
const WAIT = { seconds: 60n };

let database: OpenDatabase;
let replicas: Replicas;
beforeAll(async () => {
  database = await openDatabase();
  replicas = await Replicas.start(database.url);
});
afterAll(async () => {
  await replicas.stop();
  await database.stop();
  await cleanUp();
});

test("1,000 single pushes beside the turns of six runners are each in one turn, in order", async () => {
  const sessionId = newSession();
  const clients = [0, 1].map((index) => new RpcClient(() => replicas.at(index).grpcAddress));
  const clientOf = (index: number): RpcClient => {
    const client = clients[index % clients.length];
    if (client === undefined) throw new Error("there are two clients");
    return client;
  };
  /** The numbers in the answers of each writer, one list for each group of concurrent pushes. */
  const pushed: bigint[][] = [];
  const writing = Array.from({ length: WRITERS }, async (_, writer) => {
    let before = 0n;
    for (let at = 0; at < MESSAGES / WRITERS; at += AT_ONCE) {
      const seqs = await Promise.all(
        Array.from({ length: AT_ONCE }, (_one, one) =>
          say(clientOf(writer), sessionId, `${writer}.${at + one}`),
        ),
      );
      expect(seqs.every((seq) => seq > before)).toBe(true);
      before = seqs.reduce((highest, seq) => (seq > highest ? seq : highest));
      pushed.push(seqs);
    }
  });

  const claims: ClaimRecord[] = [];
  const taken: bigint[] = [];
  const ended = new AbortController();
  let runEnded = Promise.withResolvers<void>();
  const running = Array.from({ length: RUNNERS }, async (_, runner) => {
    const client = clientOf(runner);
    for (let turn = 0; !ended.signal.aborted; turn += 1) {
      const record: ClaimRecord = { runId: `r${runner}-${turn}`, taken: undefined };
      const { runId } = record;
      claims.push(record);
      const messagesMax = 1 + ((runner * 37 + turn * 11) % 25);
      try {
        const asked = { sessionId, runId, wait: WAIT, messagesMax };
        const { messages, producerEpoch } = await claim(client, asked, { signal: ended.signal });
        record.taken = messages.map(({ seq }) => seq);
        taken.push(...record.taken);
        const answer = { type: "CUSTOM", name: "answer", value: runId };
        await emit(client, sessionId, answer, producerEpoch);
        await finish(client, sessionId, runId);
      } catch (error) {
        if (!(error instanceof RpcFailure)) throw error;
        if (ended.signal.aborted) return;
        if (error.reason !== "RUN_OPEN") throw error;
        await runEnded.promise;
        continue;
      }
      runEnded.resolve();
      runEnded = Promise.withResolvers();
      if (taken.length >= MESSAGES) ended.abort();
    }
  });
  await Promise.all([...writing, ...running]);

  const all = Array.from({ length: MESSAGES }, (_, at) => BigInt(at + 1));
  expect(pushed.flat().toSorted((a, b) => Number(a - b))).toEqual(all);
  expect(taken).toEqual(all);
  const { rows } = await readWitness(database.sql, [sessionId]);
  const [turnSeq, pending, openRunId] = await standing(clientOf(0), sessionId);
  expect([turnSeq, pending, openRunId]).toEqual([BigInt(MESSAGES), 0n, undefined]);
  const [messages, events] = ["messages", "events"].map((one) =>
    rows.filter(({ stream }) => stream === one),
  );
  if (messages === undefined || events === undefined) throw new Error("there are two streams");
  const session = { sessionId, claims, messages, events, turnSeq: BigInt(MESSAGES), pending: 0n };
  expect(turnProblemsOf(session)).toEqual([]);
  for (const client of clients) client.close();
});
