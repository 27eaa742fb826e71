/**
 * What people say is part of the conversation for everybody who opens a session: in transcripts, and in
 * the AG-UI clients of npm, both generations. What each client shows is compared with the transcript,
 * and what a client shows that was there all the time with what a new client shows.
 */
import { execFile } from "node:child_process";
import { isDeepStrictEqual, promisify } from "node:util";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { AGUI_CLIENTS, type AguiClient, type OpenClient } from "../support/agui-clients.ts";
import { eventually } from "../support/eventually.ts";
import { newSession, push, type PushFields } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";
import {
  type AguiEvent,
  assistant,
  content,
  end,
  finished,
  snapshot,
  start,
  started,
  text,
  user,
} from "../support/agui-events.ts";

const { service, client: rpc } = useService();
useQuietConsole();

async function happen(sessionId: string, ...events: readonly AguiEvent[]): Promise<void> {
  for (const event of events) {
    await push(rpc, "events", {
      sessionId,
      eventType: event.type,
      payload: JSON.stringify(event),
    });
  }
}

/** Pushes a row of the messages' stream, and returns its id. */
async function say(sessionId: string, payload: string, fields: PushFields = {}): Promise<string> {
  return (await push(rpc, "messages", { sessionId, payload, ...fields })).id;
}

const startedWith = (runId: string, messages: readonly object[]): AguiEvent => {
  const input = { threadId: "t", runId, state: {}, tools: [], context: [], forwardedProps: {} };
  return started(runId, { input: { ...input, messages } });
};

const transcriptSchema = z.object({
  up_to_seq: z.number(),
  up_to_message_seq: z.number(),
  messages: z.array(z.looseObject({ id: z.string(), role: z.string() })),
  interrupts: z.array(z.unknown()),
});

async function transcript(
  sessionId: string,
  query = "",
): Promise<z.infer<typeof transcriptSchema>> {
  return transcriptSchema.parse(JSON.parse(await transcriptText(sessionId, query)));
}

async function transcriptText(sessionId: string, query: string): Promise<string> {
  const path = `/api/ambient/v1/sessions/${sessionId}/transcript${query}`;
  const response = await fetch(`http://${service.httpAddress}${path}`);
  expect(response.status).toBe(200);
  return response.text();
}

interface Shown {
  readonly id: string;
  readonly role: string;
  readonly content?: unknown;
}

const messageSchema = z.looseObject({
  id: z.string(),
  role: z.string(),
  content: z.unknown().optional(),
});

function shownBy(agent: OpenClient): readonly Shown[] {
  return agent.conversation().messages.map((message) => messageSchema.parse(message));
}

const rolesAndTexts = (messages: readonly Shown[]): readonly (readonly unknown[])[] =>
  messages.map(({ role, content: said }) => [role, said]);

/** Everything that the version of the client knows of a message. */
const plain = (messages: readonly Shown[]): readonly object[] =>
  messages.map(({ id, role, content: said }) => ({ id, role, content: said }));

function opened(client: AguiClient, sessionId: string): OpenClient {
  return client.open(service.httpAddress, sessionId);
}

/** What a client shows that comes now, and what it shows when it comes again. */
async function newcomer(client: AguiClient, sessionId: string): Promise<readonly Shown[]> {
  const agent = opened(client, sessionId);
  await agent.connect();
  const once = shownBy(agent);
  await agent.connect();
  expect(shownBy(agent)).toEqual(once);
  return once;
}

const HTTP_CLIENTS = AGUI_CLIENTS.filter(({ waitsForRun }) => waitsForRun);

/** A client that stays, and whose messages can be waited for. */
class Follower {
  readonly agent: OpenClient;
  readonly #ended: Promise<void>;

  constructor(client: AguiClient, sessionId: string, query = "?follow=true") {
    this.agent = opened(client, `${sessionId}${query}`);
    this.#ended = this.agent.connect();
    this.#ended.catch(() => undefined);
  }

  /** Resolves when the client shows exactly this. */
  async shows(...contents: readonly unknown[]): Promise<void> {
    await eventually(() => {
      const shown = shownBy(this.agent).map((message) => message.content);
      if (!isDeepStrictEqual(shown, contents))
        throw new Error(`it shows ${JSON.stringify(shown)}, and not ${JSON.stringify(contents)}`);
    });
  }
}

describe.each(AGUI_CLIENTS)("$name", (client) => {
  test("a session that has messages only is shown at once, in order and once", async () => {
    const sessionId = newSession();
    const rows: readonly [string, string][] = [
      ["user", "What is the time?"],
      ["lifecycle", '{"event":"run_started"}'],
      ["tool_use", '{"tool":"clock","tool_call_id":"c1","input":{"zone":"UTC"}}'],
      ["tool_result", '{"tool_call_id":"c1","result":"12:00"}'],
      ["assistant", "It is noon."],
      ["system", "The model has changed."],
      ["error", '{"error":"no quota","code":"E1"}'],
      ["user", "And now?"],
    ];
    const ids: string[] = [];
    for (const [eventType, payload] of rows) ids.push(await say(sessionId, payload, { eventType }));
    const shown = await newcomer(client, sessionId);
    expect(shown).toMatchObject([
      { id: ids[0], role: "user", content: "What is the time?" },
      {
        id: ids[2],
        role: "assistant",
        toolCalls: [{ id: "c1", function: { name: "clock", arguments: '{"zone":"UTC"}' } }],
      },
      { id: ids[3], role: "tool", toolCallId: "c1", content: "12:00" },
      { id: ids[4], role: "assistant", content: "It is noon." },
      { id: ids[5], role: "system", content: "The model has changed." },
      { id: ids[6], role: "system", name: "error", content: "no quota (E1)" },
      { id: ids[7], role: "user", content: "And now?" },
    ]);
    expect(plain((await transcript(sessionId)).messages)).toEqual(plain(shown));
  });

  test("the example of the writer shows question and answer, in order and once", async () => {
    const sessionId = newSession();
    await runExample("writer.ts", sessionId);
    expect(rolesAndTexts(await newcomer(client, sessionId))).toEqual([
      ["user", "What is the time?"],
      ["assistant", "It is noon."],
    ]);
  });

  test("a message that a run repeats is shown once and in its place: by its id, or by its text", async () => {
    const sessionId = newSession();
    const first = await say(sessionId, "one");
    await happen(
      sessionId,
      startedWith("r1", [user(first, "one")]),
      ...text("m1", "1"),
      finished("r1"),
    );
    const second = await say(sessionId, "two");
    const repeats = [user(first, "one"), assistant("m1", "1"), user(second, "two")];
    await happen(sessionId, started("r2"), ...text("m2", "2"));
    await happen(sessionId, snapshot(...repeats, assistant("m2", "2")), finished("r2"));
    const third = await say(sessionId, "three");
    const fourth = await say(sessionId, "three");
    await happen(sessionId, startedWith("r3", [user("own-1", "three")]), ...text("m3", "3"));
    await happen(sessionId, finished("r3"));
    const all = [...repeats, assistant("m2", "2"), user("own-1", "three"), assistant("m3", "3")];
    await happen(
      sessionId,
      started("r4"),
      snapshot(...all, user("own-2", "three")),
      finished("r4"),
    );
    const shown = await newcomer(client, sessionId);
    expect(plain(shown)).toEqual([
      user(first, "one"),
      assistant("m1", "1"),
      user(second, "two"),
      assistant("m2", "2"),
      user(third, "three"),
      user(fourth, "three"),
      assistant("m3", "3"),
    ]);
    expect(plain((await transcript(sessionId)).messages)).toEqual(plain(shown));
  });

  test("a message that no run repeats stays when a snapshot of messages leaves it out", async () => {
    const sessionId = newSession();
    const id = await say(sessionId, "hello");
    await happen(sessionId, started("r1"), ...text("m1", "old"), snapshot(assistant("m2", "new")));
    await happen(sessionId, finished("r1"));
    expect(plain(await newcomer(client, sessionId))).toEqual([
      user(id, "hello"),
      assistant("m2", "new"),
    ]);
  });

  test("a payload in the form of a RunAgentInput keeps the ids that it gives", async () => {
    const sessionId = newSession();
    await happen(sessionId, startedWith("r1", [user("page-1", "hi")]), ...text("m1", "hello"));
    await happen(sessionId, finished("r1"));
    const parts = [
      { type: "text", text: "Look at this:" },
      { type: "image", source: { type: "url", value: "http://x/y.png", mimeType: "image/png" } },
    ];
    const messages = [user("page-1", "hi"), assistant("m1", "hello"), user("page-2", "again")];
    const picture = { id: "page-3", role: "user", content: parts };
    await say(sessionId, JSON.stringify({ threadId: sessionId, messages }));
    await say(sessionId, JSON.stringify({ threadId: sessionId, messages: [picture] }));
    await happen(sessionId, started("r2"), finished("r2")); // Else a client waits for its answer.
    const expected = [...messages, picture];
    expect(plain(await newcomer(client, sessionId))).toEqual(expected);
    expect(plain((await transcript(sessionId)).messages)).toEqual(expected);
  });
});

describe.each(HTTP_CLIENTS)("$name that follows", (client) => {
  test("sees messages between runs, in a run, and once more than once: as a new client does", async () => {
    const sessionId = newSession();
    const first = await say(sessionId, "one");
    const follower = new Follower(client, sessionId);
    await follower.shows("one");
    const second = await say(sessionId, "two"); // Before the first run.
    await follower.shows("one", "two");
    await happen(
      sessionId,
      startedWith("r1", [user(first, "one")]),
      start("m1"),
      content("m1", "a"),
    );
    await follower.shows("one", "two", "a");
    const third = await say(sessionId, "three"); // While the answer is open.
    await follower.shows("one", "two", "a", "three");
    await happen(sessionId, content("m1", "b"), end("m1"), finished("r1"));
    await follower.shows("one", "two", "ab", "three");
    await say(sessionId, "four"); // Between runs.
    await follower.shows("one", "two", "ab", "three", "four");
    const repeated = [user(second, "two"), user(third, "three"), user("own", "four")];
    await happen(sessionId, startedWith("r2", repeated), ...text("m2", "c"));
    await follower.shows("one", "two", "ab", "three", "four", "c");
    await happen(sessionId, snapshot(assistant("m2", "c!")), finished("r2"));
    await happen(sessionId, started("r3"), ...text("m3", "d"), finished("r3"));
    await follower.shows("c!", "d");
    expect(shownBy(follower.agent)).toEqual(await newcomer(client, sessionId));
  });

  test("keeps a message that no run repeats when a snapshot comes", async () => {
    const sessionId = newSession();
    await happen(sessionId, started("r1"), ...text("m1", "a"));
    const follower = new Follower(client, sessionId);
    await follower.shows("a");
    await say(sessionId, "hello");
    await follower.shows("a", "hello");
    await happen(sessionId, snapshot(assistant("m1", "A"), assistant("m2", "b")));
    await follower.shows("A", "hello", "b");
    await happen(sessionId, finished("r1"));
    expect(shownBy(follower.agent)).toEqual(await newcomer(client, sessionId));
  });

  test("sees the messages of a runner that pushes messages only, and then the runs of one with events", async () => {
    const sessionId = newSession();
    const follower = new Follower(client, sessionId);
    await say(sessionId, "question");
    await follower.shows("question");
    await say(sessionId, "answer", { eventType: "assistant" });
    await follower.shows("question", "answer");
    await say(sessionId, "next");
    // The new runner derives a message from its events, which may be stored first.
    await say(sessionId, "events", { eventType: "assistant" });
    await follower.shows("question", "answer", "next", "events");
    await happen(sessionId, started("r1"), ...text("m1", "events"), finished("r1"));
    await eventually(() =>
      expect(plain(shownBy(follower.agent)).at(-1)).toEqual(assistant("m1", "events")),
    );
    await follower.shows("question", "answer", "next", "events");
    expect(shownBy(follower.agent)).toEqual(await newcomer(client, sessionId));
  });

  test("waits for an answer to an interrupt also when a message came behind it", async () => {
    const sessionId = newSession();
    const outcome = { type: "interrupt", interrupts: [{ id: "i1", reason: "may_i" }] };
    await happen(sessionId, started("r1"), ...text("m1", "May I?"), finished("r1", { outcome }));
    const follower = new Follower(client, sessionId);
    await follower.shows("May I?");
    await say(sessionId, "wait");
    await follower.shows("May I?", "wait");
    await eventually(() =>
      expect(follower.agent.conversation().interrupts).toEqual(outcome.interrupts),
    );
    expect((await transcript(sessionId)).interrupts).toEqual(outcome.interrupts);
  });

  test("sees the text of a message with a picture in a run, and the picture with the next run", async () => {
    const sessionId = newSession();
    await happen(sessionId, started("r1"), start("m1"), content("m1", "a"));
    const follower = new Follower(client, sessionId);
    await follower.shows("a");
    const parts = [
      { type: "text", text: "look" },
      { type: "image", source: { type: "url", value: "http://x/y.png", mimeType: "image/png" } },
    ];
    const picture = { id: "p1", role: "user", content: parts };
    await say(sessionId, JSON.stringify({ messages: [picture] }));
    await follower.shows("a", "look");
    await happen(sessionId, end("m1"), finished("r1"), started("r2"), ...text("m2", "b"));
    await follower.shows("a", parts, "b");
    await happen(sessionId, finished("r2"));
    expect(shownBy(follower.agent)).toEqual(await newcomer(client, sessionId));
  });

  test("gets the same from a replay as from a snapshot", async () => {
    const sessionId = newSession();
    const first = await say(sessionId, "one");
    await say(sessionId, "one more");
    await happen(
      sessionId,
      startedWith("r1", [user(first, "one")]),
      start("m1"),
      content("m1", "a"),
    );
    await say(sessionId, "two");
    await happen(sessionId, content("m1", "b"), end("m1"), finished("r1"));
    await say(sessionId, "three");
    await happen(sessionId, started("r2"), ...text("m2", "c"), finished("r2"));
    await say(sessionId, "four");
    const shown = await newcomer(client, sessionId);
    expect(shown.map((message) => message.content)).toEqual([
      "one",
      "one more",
      "ab",
      "two",
      "three",
      "c",
      "four",
    ]);
    expect(await newcomer(client, `${sessionId}?replay=events`)).toEqual(shown);
    const onlyMessages = newSession();
    for (const payload of ["a", "b", "c"]) await say(onlyMessages, payload);
    const replayed = await newcomer(client, `${onlyMessages}?replay=events`);
    expect(replayed).toEqual(await newcomer(client, onlyMessages));
    expect(replayed).toHaveLength(3);
    const follower = new Follower(client, onlyMessages, "?replay=events&follow=true");
    await follower.shows("a", "b", "c");
    await say(onlyMessages, "d");
    await follower.shows("a", "b", "c", "d");
  });

  test("is not refused with a message whose id was the idempotency key of its push", async () => {
    const sessionId = newSession();
    await say(sessionId, "typed", { idempotencyKey: "page-1" });
    const agent = opened(client, sessionId);
    agent.say({ id: "page-1", role: "user", content: "typed" });
    await agent.connect();
    expect(rolesAndTexts(shownBy(agent))).toEqual([["user", "typed"]]);
  });
});

describe("a transcript", () => {
  test("names the sender and the times of a message, and has it in every format", async () => {
    const sessionId = newSession();
    const sentAt = { seconds: 1_700_000_000n, nanos: 123_456_000 };
    const sender = { id: "U1", name: "ann", displayName: "Ann", isBot: false, channel: "slack" };
    const row = await push(rpc, "messages", { sessionId, payload: "hi", sender, sentAt });
    const micros = Math.floor((row.createdAt?.nanos ?? 0) / 1_000);
    const ms = Number(row.createdAt?.seconds ?? 0n) * 1_000;
    const createdAt = `${new Date(ms).toISOString().slice(0, 19)}.${String(micros).padStart(6, "0")}Z`;
    const { messages, ...rest } = await transcript(sessionId);
    expect(rest).toEqual({ up_to_seq: 0, up_to_message_seq: 1, interrupts: [] });
    expect(messages).toEqual([
      {
        id: row.id,
        role: "user",
        content: "hi",
        name: "Ann",
        metadata: {
          session: {
            createdAt,
            sentAt: "2023-11-14T22:13:20.123456Z",
            sender: { id: "U1", name: "ann", displayName: "Ann", channel: "slack" },
          },
        },
      },
    ]);
    expect(await transcriptText(sessionId, "?format=text")).toBe("User (Ann):\n    hi\n");
    expect(await transcriptText(sessionId, "?format=markdown")).toBe("## User (`Ann`)\n\n> hi\n");
  });

  test("up to an event has the messages before the next event", async () => {
    const sessionId = newSession();
    await say(sessionId, "one");
    await happen(sessionId, started("r1"), start("m1"));
    await say(sessionId, "two");
    await happen(sessionId, content("m1", "a"), end("m1"), finished("r1"));
    await say(sessionId, "three");
    const upTo = async (seq: number): Promise<readonly unknown[]> =>
      (await transcript(sessionId, `?up_to_seq=${seq}`)).messages.map((one) => one["content"]);
    expect(await upTo(0)).toEqual(["one"]);
    expect(await upTo(1)).toEqual(["one"]);
    expect(await upTo(2)).toEqual(["one", "", "two"]);
    expect(await upTo(4)).toEqual(["one", "a", "two"]);
    expect(await upTo(5)).toEqual(["one", "a", "two", "three"]);
  });
});

const FOLDER = fileURLToPath(new URL("../../examples", import.meta.url));

async function runExample(name: string, sessionId: string): Promise<void> {
  const args = [`${FOLDER}/${name}`, sessionId, service.grpcAddress];
  await promisify(execFile)(process.execPath, args);
}
