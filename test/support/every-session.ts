/** A ledger with every kind of session, made by the calls of clients, as far as calls can make it. */
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { withSql } from "./embedded-fixture.ts";
import type { RpcClient } from "./grpc-client.ts";
import { mergeFragments } from "./merging.ts";
import { fragments, PushStreamClient, whole } from "./push-stream.ts";

const { method } = SessionService;

/** Its ids in the order of their bytes, which is not that of their letters. */
export const EVERY_SESSION = [
  "Upper",
  "claimed",
  "deleted",
  "empty",
  "erased",
  "forked",
  "known",
  "large",
  "merged",
  "retained",
  "streamed",
  "z:texts",
] as const;

/** Texts that a copy could change: NUL as JSON spells it, half characters, line ends, long numbers. */
export const TEXTS = [
  '{"type":"CUSTOM","name":"nul","value":"\\u0000 \\ud800 \\\\u0000"}',
  '{"type":"CUSTOM","name":"lines","value":"\u2028\u2029\u007f","more": [1.0,  1e400, 9007199254740993]}',
  '{\n\t"type": "CUSTOM",\r\n "name": "spaced", "value": {"b":1,"a":2,"a":3}}',
  '{"type":"CUSTOM","name":"characters","value":"😀 ü \\ud83d\\ude00"}',
] as const;

/** Above what a double holds, and the largest that the contract takes. */
export const EPOCH = 2n ** 63n - 10n;

export async function fillEveryKind(client: RpcClient, databaseUrl: string): Promise<void> {
  const event = (sessionId: string, payload: string, more: object = {}) =>
    client.unary(method.pushSessionEvent, {
      sessionId,
      eventType: String(JSON.parse(payload).type),
      payload,
      ...more,
    });
  const said = (sessionId: string, payload: string, more: object = {}) =>
    client.unary(method.pushSessionMessage, { sessionId, eventType: "user", payload, ...more });
  const run = (runId: string, type: string) =>
    JSON.stringify({ type, threadId: "t", runId, message: "failed" });

  // Ids that a client chooses come with the first push; CreateSession gives its own.
  await withSql(
    databaseUrl,
    (sql) => sql`
      insert into sessions (id, name, project_id, phase, prompt, labels, annotations, start_time,
        created_at, updated_at)
      values ('empty', ${"a \\ name\t"}, 'p1', 'Running', 'a prompt', '{"team": "infra"}', '{"z":1, "a":2}',
        '0001-01-01', '2026-01-01T00:00:00.000001Z', '9999-12-31T23:59:59.999999Z')`,
  );
  await said("Upper", "hi", {
    idempotencyKey: "k1",
    sender: { id: "u1", name: "Ü", channel: "slack" },
    sentAt: { seconds: 1_700_000_000n, nanos: 123_456_000 },
  });
  for (const [at, text] of TEXTS.entries())
    await event("z:texts", text, { idempotencyKey: `key "${at}" \\ ü` });

  await said("claimed", "first");
  await client.unary(method.claimTurn, {
    sessionId: "claimed",
    producerEpoch: EPOCH,
    runStarted: run("r1", "RUN_STARTED"),
  });
  await client.unary(method.cancelRun, {
    sessionId: "claimed",
    runId: "r1",
    reason: "wrong question",
  });
  await said("claimed", "it waits");

  await event("known", run("r1", "RUN_STARTED"));
  for (const payload of [
    '{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}',
    '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"an answer"}',
    '{"type":"TEXT_MESSAGE_END","messageId":"m1"}',
  ])
    await event("known", payload);
  await event("known", run("r1", "RUN_ERROR"));
  await client.unary(method.giveFeedback, {
    sessionId: "known",
    messageId: "m1",
    kind: "thumbs_up",
    comment: "good",
  });

  await client.unary(method.forkSession, { sessionId: "z:texts", newId: "forked", atSeq: 2n });

  const raw = fragments(Array.from({ length: 40 }, (_, at) => `${at} ü`)).map(
    ({ payload = "" }) => ({
      eventType: "TEXT_MESSAGE_CONTENT",
      payload,
    }),
  );
  for (const { eventType, payload, eventCount, fragments: index } of mergeFragments(raw))
    await client.unary(method.pushSessionEvent, {
      sessionId: "merged",
      eventType,
      payload,
      ...(index === undefined ? {} : { eventCount, fragments: index }),
    });

  const { stream } = await PushStreamClient.open(client, { sessionId: "streamed" });
  stream.batch(1, [...fragments(["a", "b", "c"]), { payload: '{"type":"NONSENSE"}' }, whole("x")]);
  stream.flush();
  await stream.committed(5);
  stream.end();

  // More than one page of rows, and pages that end for their bytes.
  const { stream: large } = await PushStreamClient.open(client, { sessionId: "large" });
  large.batch(
    1,
    Array.from({ length: 1_500 }, (_, at) => whole(at)),
  );
  for (let number = 1_501; number <= 1_512; number += 1) {
    large.batch(number, [whole("long ".repeat(150_000))]);
    large.flush();
    await large.committed(number);
  }
  large.end();

  for (const sessionId of ["deleted", "erased", "retained"]) {
    await said(sessionId, "once");
    await event(sessionId, run("r1", "RUN_STARTED"));
    await event(sessionId, run("r1", "RUN_FINISHED"));
    await event(sessionId, run("r2", "RUN_STARTED"));
  }
  await client.unary(method.deleteSession, { id: "deleted" });
  await client.unary(method.eraseSession, { id: "erased" });
  await withSql(databaseUrl, async (sql) => {
    // As retention and an import leave them.
    await sql`select ledger_erase_rows('retained', 'events', 2, null, false, 500, 1000000)`;
    await sql`insert into imported_rows values ('known', 'events', 7, 1), ('known', 'messages', 3, 1),
      ('known', 'events', 9, 2)`;
    await sql`insert into imports values ('upstream', 'events', 9, '2026-01-01T00:00:00.5Z')`;
  });
}
