/**
 * Redaction as it is seen from outside: secrets go in by every door, and come out of none, neither
 * whole nor in halves; and at the end there is none in any column of any table, and none in the log.
 */
import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { Compression } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { withSql } from "../support/embedded-fixture.ts";
import { mergeFragments } from "../support/merging.ts";
import type { MessageStream } from "../support/grpc-client.ts";
import { API, Following } from "../support/http-clients.ts";
import { eventsOf, fragments, PushStreamClient } from "../support/push-stream.ts";
import { createdSession, push, type Row, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { createSession, getSession, holdSession, updateSession, watchSessionEvents } =
  SessionService.method;

const { service, client } = useService("strict");

/** What no answer, no table and no log may hold: every secret that was sent, and every part that a test cut it into. */
const never: string[] = [];

/** A new one each time, and what it becomes. */
function secret({ parts = 1 } = {}) {
  const body = randomBytes(30).toString("hex").slice(0, 36);
  const size = Math.ceil(body.length / parts);
  const pieces: readonly string[] = body.match(new RegExp(`.{1,${size}}`, "g")) ?? [];
  never.push(body, ...pieces.filter((piece) => piece.length >= 8));
  return { whole: `ghp_${body}`, masked: `ghp_${"*".repeat(36)}`, pieces };
}

async function take<T>(stream: MessageStream<T>, count: number): Promise<readonly T[]> {
  const taken: T[] = [];
  for await (const one of stream) if (taken.push(one) === count) break;
  return taken;
}

/** Empty for an event without one. */
function deltasOf(rows: readonly Pick<Row, "payload">[]): readonly string[] {
  return rows.map(({ payload }) => {
    const event: { readonly delta?: string } = JSON.parse(payload);
    return event.delta ?? "";
  });
}

describe("a push stream", () => {
  test.each([
    ["rows of merged fragments", Compression.ON],
    ["a row for each fragment", Compression.OFF],
  ])(
    "with %s stores a secret over two deltas masked, and no watcher sees a half",
    async (_name, compression) => {
      const sessionId = await createdSession(client);
      const { masked, pieces } = secret({ parts: 2 });
      const [first = "", second = ""] = pieces;
      await push(client, "events", { sessionId });
      const rows = client.serverStream(watchSessionEvents, { sessionId, afterSeq: 1n });
      const raw = client.serverStream(watchSessionEvents, {
        sessionId,
        afterSeq: 1n,
        expand: true,
      });
      const sse = new Following(
        `http://${service.httpAddress}${API}/sessions/${sessionId}/events?after_seq=1`,
      );
      await Promise.all([rows.attached, raw.attached, sse.untilOpened()]);
      const { stream } = await PushStreamClient.open(client, {
        sessionId,
        compression,
        maxAgeMs: 5_000,
      });
      const deltas = ["the key ", "is gh", "p_", first, second, " as", " you see"];
      for (const [at, event] of fragments(deltas).entries()) stream.batch(at + 1, [event]);
      stream.end();
      await stream.rest();
      const stars = deltas.map((delta) =>
        pieces.includes(delta) ? "*".repeat(delta.length) : delta,
      );
      expect(deltasOf(await take(raw, deltas.length))).toEqual(stars);
      const merged = compression === Compression.ON;
      const expected = merged ? [`the key is ${masked} as you see`] : stars;
      expect(deltasOf(await take(rows, expected.length))).toEqual(expected);
      await sse.until(deltas.length);
      expect(JSON.stringify(sse.given)).not.toMatch(new RegExp(pieces.join("|")));
      sse.close();
      expect(deltasOf(await eventsOf(client, sessionId, { expand: true })).slice(1)).toEqual(stars);
    },
  );

  test("with a secret cut by a flush, an age and a unary push stores it masked", async () => {
    const sessionId = await createdSession(client);
    const { stream } = await PushStreamClient.open(client, { sessionId, maxAgeMs: 20 });
    const { whole, pieces } = secret({ parts: 4 });
    let number = 0;
    const send = (delta: string): void => stream.batch((number += 1), fragments([delta]));
    send(whole.slice(0, 4));
    send(pieces[0] ?? "");
    stream.flush();
    await stream.committed(2);
    send(pieces[1] ?? "");
    await stream.committed(3); // By its age.
    send(pieces[2] ?? "");
    await push(client, "events", { sessionId });
    await stream.committed(4);
    send(`${pieces[3]} and on`);
    stream.end();
    await stream.rest();
    const deltas = deltasOf(await eventsOf(client, sessionId, { expand: true }));
    expect(deltas.join("")).toBe(`ghp_${"*".repeat(36)} and on`);
  });

  test("masks a secret whose parts come before and after a reconnect to this instance", async () => {
    const sessionId = await createdSession(client);
    const { whole, pieces } = secret({ parts: 2 });
    const { stream, opened } = await PushStreamClient.open(client, { sessionId });
    stream.batch(1, fragments([whole.slice(0, 4), pieces[0] ?? ""]));
    stream.end();
    await stream.rest();
    const { producerEpoch } = opened;
    const again = await PushStreamClient.open(client, { sessionId, producerEpoch });
    expect(again.opened.lastClientSeq).toBe(2n);
    again.stream.batch(3, fragments([`${pieces[1]}, it says`]));
    again.stream.end();
    await again.stream.rest();
    const deltas = deltasOf(await eventsOf(client, sessionId, { expand: true }));
    expect(deltas.join("")).toBe(`ghp_${"*".repeat(36)}, it says`);
  });

  test("masks a CHUNK without a message id as part of the open text", async () => {
    const sessionId = await createdSession(client);
    const { pieces } = secret({ parts: 2 });
    const chunk = (delta: string, messageId?: string) => ({
      payload: JSON.stringify({ type: "TEXT_MESSAGE_CHUNK", messageId, delta }),
    });
    const { stream, opened } = await PushStreamClient.open(client, { sessionId });
    stream.batch(1, [chunk("it is", "m")]);
    stream.end();
    await stream.rest();
    const { producerEpoch } = opened;
    const again = await PushStreamClient.open(client, { sessionId, producerEpoch });
    again.stream.batch(2, [chunk(" ghp_"), chunk(pieces[0] ?? "", "m"), chunk(pieces[1] ?? "")]);
    again.stream.end();
    await again.stream.rest();
    const deltas = deltasOf(await eventsOf(client, sessionId, { expand: true }));
    expect(deltas.join("")).toBe(`it is ghp_${"*".repeat(36)}`);
  });

  test("masks text in other fields, of known and unknown frames", async () => {
    const sessionId = await createdSession(client);
    const { stream } = await PushStreamClient.open(client, { sessionId });
    const { whole, masked } = secret();
    const event = (delta: string, said: string, pin: unknown) =>
      JSON.stringify({
        type: "TEXT_MESSAGE_CONTENT",
        messageId: "m",
        delta,
        rawEvent: { said, pin },
      });
    stream.batch(
      1,
      ["a", "b", "c"].map((delta) => ({ payload: event(delta, whole, 1234) })),
    );
    stream.batch(4, [
      {
        payload: JSON.stringify({
          type: "CUSTOM",
          name: "n",
          value: { delta: whole },
          delta: whole,
        }),
      },
    ]);
    stream.end();
    await stream.rest();
    const rows = await eventsOf(client, sessionId);
    expect(rows.map(({ payload }) => payload)).toEqual([
      event("abc", masked, "***"),
      JSON.stringify({ type: "CUSTOM", name: "n", value: { delta: masked }, delta: masked }),
    ]);
  });
});

describe("a unary push", () => {
  test("of an event is masked in all its strings, and a merged row still expands", async () => {
    const sessionId = await createdSession(client);
    const { whole, masked } = secret();
    const text = `say ${whole} twice: ${whole}`;
    const lengths = [8, text.length - 10, 2].map((units) => units + 1);
    const fields = {
      sessionId,
      eventType: "TEXT_MESSAGE_CONTENT",
      payload: JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: text }),
      eventCount: 3,
      fragments: { lengths },
      completedAt: { seconds: 2_000_000_000n, nanos: 0 },
    };
    const stored = await push(client, "events", fields);
    expect(stored.payload).toContain(`say ${masked} twice: ${masked}`);
    const deltas = deltasOf(await eventsOf(client, sessionId, { expand: true }));
    expect(deltas.map((delta) => delta.length)).toEqual([8, text.length - 10, 2]);
    expect(deltas.join("")).toBe(`say ${masked} twice: ${masked}`);
  });

  test("of a merged row is masked in the rawEvent of each of its events", async () => {
    const sessionId = await createdSession(client);
    const [one, two, three] = [secret(), secret(), secret({ parts: 2 })];
    const event = (delta: string, key: string | number, copy = delta) =>
      JSON.stringify({
        type: "TEXT_MESSAGE_CONTENT",
        messageId: "m",
        delta,
        rawEvent: { key, text: copy, headers: { at: key } },
      });
    const [half = "", rest = ""] = three.pieces;
    const sent = [
      event(`ghp_${half}`, one.whole, ""),
      event(rest, two.whole, ""),
      event(" and ", `${two.whole}!`),
      event("more", 7),
    ];
    const [row] = mergeFragments(
      sent.map((payload) => ({ eventType: "TEXT_MESSAGE_CONTENT", payload })),
    );
    if (row?.fragments === undefined) throw new Error("nothing was merged");
    expect(row.eventCount).toBe(4);
    // The two secrets can begin or end alike, and such ends are not in the texts.
    expect(row.fragments.rawEvents?.texts).toContain(two.pieces[0]?.slice(8, -8));
    await push(client, "events", { sessionId, ...row, fragments: row.fragments });
    const events = await eventsOf(client, sessionId, { expand: true });
    const values = events.map(({ payload }) => JSON.parse(payload));
    expect(values.map(({ delta }) => delta).join("")).toBe(`${three.masked} and more`);
    expect(values.map(({ rawEvent }) => rawEvent.key)).toEqual([
      one.masked,
      two.masked,
      `${two.masked}!`,
      7,
    ]);
    expect(values.map(({ rawEvent }) => rawEvent.text)).toEqual(["", "", " and ", "more"]);
  });

  test("of a grouped event is masked", async () => {
    const sessionId = await createdSession(client);
    const { whole, masked } = secret();
    const payload = JSON.stringify({
      messageId: "m",
      role: "assistant",
      accumulated_content: `it is ${whole}`,
      fragment_count: 2,
      end_event: { type: "TEXT_MESSAGE_END", messageId: "m" },
    });
    await push(client, "events", { sessionId, eventType: "TEXT_MESSAGE_START", payload });
    const rows = await rowsOf(client, "events", sessionId);
    expect(JSON.stringify(rows.map(({ payload: text }) => text))).toContain(`it is ${masked}`);
  });

  test("of a message is masked, plain and JSON, with its sender; a retry is the same push", async () => {
    const sessionId = await createdSession(client);
    const { whole, masked } = secret();
    const acme = `acme_${randomBytes(6).toString("hex")}`;
    never.push(acme.slice(5));
    const fields = {
      sessionId,
      payload: `my key is ${whole} and ${acme}`,
      sender: { id: "u", name: whole },
      idempotencyKey: "k",
    };
    const stored = await push(client, "messages", fields);
    expect(stored.payload).toBe(`my key is ${masked} and acme_${"*".repeat(12)}`);
    expect(stored).toMatchObject({ sender: { id: "u", name: masked } });
    expect(await push(client, "messages", fields)).toMatchObject({
      seq: stored.seq,
      deduplicated: true,
    });
    const payload = JSON.stringify({ input: { pin: 9_876_543_210, key: whole } });
    const tool = await push(client, "messages", { sessionId, eventType: "tool_use", payload });
    expect(JSON.parse(tool.payload)).toEqual({ input: { pin: "***", key: masked } });
    never.push("9876543210");
  });

  test("of a run with a secret as its id is masked, also in the row of the run", async () => {
    const sessionId = await createdSession(client);
    const { whole, masked } = secret();
    const payload = JSON.stringify({ type: "RUN_STARTED", threadId: "t", runId: whole });
    const row = await push(client, "events", { sessionId, eventType: "RUN_STARTED", payload });
    expect(JSON.parse(row.payload)).toMatchObject({ runId: masked });
    expect(row).toMatchObject({ runId: masked });
  });
});

test("the texts of a session are masked", async () => {
  const { whole, masked } = secret();
  const { metadata } = await client.unary(createSession, {
    name: `for ${whole}`,
    prompt: `use ${whole}`,
    labels: JSON.stringify({ key: whole }),
    annotations: whole,
  });
  const id = metadata?.id ?? "";
  const session = await client.unary(getSession, { id });
  expect(session).toMatchObject({
    name: `for ${masked}`,
    prompt: `use ${masked}`,
    labels: JSON.stringify({ key: masked }),
    annotations: masked,
  });
  await client.unary(updateSession, { id, name: `was ${whole}`, annotations: "none" });
  expect(await client.unary(getSession, { id })).toMatchObject({
    name: `was ${masked}`,
    labels: JSON.stringify({ key: masked }),
    annotations: "none",
  });
  expect(session.llmModel).toBeUndefined();
  const held = await client.unary(holdSession, { id, reason: `for ${whole}` });
  expect(held).toMatchObject({ hold: `for ${masked}` });
});

test("a refusal repeats no secret", async () => {
  const { whole } = secret();
  const payload = JSON.stringify({ type: "TEXT_MESSAGE_START", messageId: 1, role: whole });
  const failure = await push(client, "events", {
    sessionId: await createdSession(client),
    eventType: "TEXT_MESSAGE_START",
    payload,
  }).catch(String);
  expect(failure).toBeTypeOf("string");
  expect(failure).not.toContain(whole.slice(4));
});

describe("after all tests", () => {
  test("no column of any table has a secret or a part of one", async () => {
    await withSql(service.databaseUrl, async (sql) => {
      const tables = await sql<{ name: string }[]>`
      select quote_ident(table_schema) || '.' || quote_ident(table_name) as name
      from information_schema.tables
      where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'`;
      expect(tables.map(({ name }) => name)).toContain("public.session_events");
      let rows = 0;
      for (const { name } of tables) {
        const held = await sql.unsafe<{ text: string }[]>(`select t::text as text from ${name} t`);
        rows += held.length;
        for (const { text } of held) {
          const hex = (part: string): string => Buffer.from(part).toString("hex");
          const found = never.filter((part) => text.includes(part) || text.includes(hex(part)));
          expect(found, `${name}: ${text}`).toEqual([]);
        }
      }
      expect(never.length).toBeGreaterThan(10);
      expect(rows).toBeGreaterThan(20);
    });
  });

  test("no line of the log has a secret", () => {
    expect(service.log.length).toBeGreaterThan(10);
    expect(service.log.filter((line) => never.some((part) => line.includes(part)))).toEqual([]);
  });

  test("the metric counts the secrets by kind", async () => {
    const answer = await fetch(`http://${service.opsAddress}/metrics`);
    const metrics = await answer.text();
    const count = (kind: string): number =>
      Number(
        new RegExp(`^session_ledger_redactions_total{kind="${kind}"} (\\d+)$`, "m").exec(
          metrics,
        )?.[1],
      );
    expect(count("github")).toBeGreaterThan(10);
    expect(count("acme")).toBe(2); // The retry was looked at too.
    expect(count("key")).toBe(2);
  });
});
