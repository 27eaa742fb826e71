/**
 * Regenerate and edit, with the clients of npm and a runner of the SDK: what the page shows, what somebody
 * shows who was there all the time or comes later, and what the agent is asked.
 */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import { lastText, saying, TestBridge } from "../support/echo-bridge.ts";
import { user } from "../support/agui-events.ts";
import { type Page, PAGE_CLIENTS, type PageClient, type Shown } from "../support/agui-pages.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { emit, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { getTranscript, listSessionMessages } = SessionService.method;

const { service, client: rpc } = useService();
useQuietConsole();

/** A runner whose agent thinks, calls a tool, and numbers its answers. */
function answering(sessionId: string) {
  let count = 0;
  const bridge = new TestBridge(async function* (input) {
    count += 1;
    const { runId } = input;
    const messageId = `thought-${runId}`;
    yield { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" };
    yield { type: "REASONING_MESSAGE_CONTENT", messageId, delta: "hm" };
    yield { type: "REASONING_MESSAGE_END", messageId };
    yield* saying(input, `${count}: ${lastText(input)}`);
  });
  const runner = createRunner(bridge, { address: service.grpcAddress, sessionId });
  const ended = runner.run();
  const stop = async (): Promise<void> => {
    await runner.stop();
    await ended;
  };
  return { bridge, stop };
}

const textsOf = (messages: readonly Shown[]): readonly unknown[] =>
  messages.filter(({ role }) => role !== "reasoning").map(({ content }) => content);

/** What each way shows that a session can be opened on. */
async function everywhere(client: PageClient, sessionId: string): Promise<readonly unknown[]> {
  const page = client.open(service.httpAddress, sessionId);
  await page.join();
  const { messages } = await rpc.unary(getTranscript, { sessionId });
  const shown: readonly Shown[] = JSON.parse(messages);
  const replayed = PAGE_CLIENTS[0]?.open(service.httpAddress, `${sessionId}?replay=events`);
  await replayed?.join();
  return [page.messages, shown, replayed?.messages ?? []].map(textsOf);
}

/** What a client of AG-UI shows that joins earlier branches. */
function joinedAt(
  sessionId: string,
  branches: readonly bigint[],
): Promise<readonly (readonly unknown[])[]> {
  return Promise.all(
    branches.map(async (upToSeq) => {
      const url = `${sessionId}?up_to_seq=${upToSeq}`;
      const page = PAGE_CLIENTS[0]?.open(service.httpAddress, url);
      await page?.join();
      return textsOf(page?.messages ?? []);
    }),
  );
}

const thrice = (texts: readonly unknown[]): readonly unknown[] => [texts, texts, texts];

/** The contents that the agent was given, without senders. */
function askedOf(bridge: TestBridge): readonly unknown[] {
  return bridge.inputs
    .slice(-1)
    .flatMap((input) =>
      input.messages
        .filter(({ role }) => role !== "reasoning")
        .map((message) => lastText({ ...input, messages: [message] })),
    );
}

describe.each(PAGE_CLIENTS)("$name", (client) => {
  const open = (sessionId: string): Page => client.open(service.httpAddress, sessionId);

  async function ask(page: Page, id: string, text: string): Promise<void> {
    page.type(user(id, text));
    await page.run();
  }

  test("regenerates an answer, the last one or an earlier one", async () => {
    // Bug: the old answer came back, and no runner heard of it.
    const sessionId = newSession();
    const { bridge, stop } = answering(sessionId);
    const page = open(sessionId);
    await ask(page, "u1", "one");
    await ask(page, "u2", "two");
    const follower = PAGE_CLIENTS[0]?.open(service.httpAddress, `${sessionId}?follow=true`);
    const followed = follower?.join();
    await expect.poll(() => textsOf(follower?.messages ?? [])).toHaveLength(4);
    page.cutBehind("u2");
    await page.regenerate();
    const second = ["one", "1: one", "two", "3: two"];
    expect(textsOf(page.messages)).toEqual(second);
    expect(askedOf(bridge)).toEqual(second.slice(0, 3));
    expect(await everywhere(client, sessionId)).toEqual(thrice(second));
    await expect.poll(() => textsOf(follower?.messages ?? [])).toEqual(second);
    page.cutBehind("u1");
    await page.regenerate();
    const first = ["one", "4: one"];
    expect(textsOf(page.messages)).toEqual(first);
    expect(askedOf(bridge)).toEqual(["one"]);
    expect(await everywhere(client, sessionId)).toEqual(thrice(first));
    await expect.poll(() => textsOf(follower?.messages ?? [])).toEqual(first);
    // The conversation goes on in the newest branch.
    await ask(page, "u3", "three");
    const last = [...first, "three", "5: three"];
    expect(textsOf(page.messages)).toEqual(last);
    expect(await everywhere(client, sessionId)).toEqual(thrice(last));
    await follower?.leave();
    await followed?.catch(() => undefined);
    await stop();
    // The log keeps all.
    const rows = await rowsOf(rpc, "messages", sessionId);
    const arrivals = rows.filter(({ eventType }) => eventType === "user");
    expect(arrivals.map(({ payload }) => JSON.parse(payload).messages)).toMatchObject([
      [{ id: "u1" }],
      [{ id: "u2" }],
      [{ id: "u2", metadata: { regenerates: "u2" } }],
      [{ id: "u1", metadata: { regenerates: "u1" } }],
      [{ id: "u3" }],
    ]);
    const { branches } = await rpc.unary(getTranscript, { sessionId });
    const left = await Promise.all(
      branches.map(async (upToSeq) => {
        const { messages } = await rpc.unary(getTranscript, { sessionId, upToSeq });
        return textsOf(JSON.parse(messages));
      }),
    );
    expect(left).toEqual([["one", "1: one", "two", "2: two"], second]);
    expect(await joinedAt(sessionId, branches)).toEqual(left);
  });

  test("puts an edited message in the place of the other one", async () => {
    // Bug: it was appended beside the old one.
    const sessionId = newSession();
    const { bridge, stop } = answering(sessionId);
    const page = open(sessionId);
    for (const [id, text] of [
      ["u1", "one"],
      ["u2", "two"],
      ["u3", "three"],
    ] as const)
      await ask(page, id, text);
    const answer = page.messages.filter(({ role }) => role === "assistant")[0];
    page.cutBehind(answer?.id ?? "");
    await ask(page, "u4", "zwei");
    const edited = ["one", "1: one", "zwei", "4: zwei"];
    expect(textsOf(page.messages)).toEqual(edited);
    expect(askedOf(bridge)).toEqual(edited.slice(0, 3));
    expect(await everywhere(client, sessionId)).toEqual(thrice(edited));
    await stop();
    const { branches } = await rpc.unary(getTranscript, { sessionId });
    expect(await joinedAt(sessionId, branches)).toEqual([
      ["one", "1: one", "two", "2: two", "three", "3: three"],
    ]);
    const { items } = await rpc.unary(listSessionMessages, { sessionId, eventTypes: ["user"] });
    expect(JSON.parse(items.at(-1)?.payload ?? "").messages).toMatchObject([
      { id: "u4", content: "zwei", metadata: { edits: "u2" } },
    ]);
  });

  test("a page that has not seen everything edits nothing", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    await say(rpc, sessionId, '{"messages":[{"id":"u1","role":"user","content":"one"}]}');
    const run = (runId: string) => ({ threadId: sessionId, runId });
    await emit(rpc, sessionId, { type: "RUN_STARTED", ...run("r1") });
    const chunk = { type: "TEXT_MESSAGE_CHUNK", role: "assistant" };
    await emit(rpc, sessionId, { ...chunk, messageId: "a1", delta: "first" });
    await emit(rpc, sessionId, { type: "RUN_FINISHED", ...run("r1") });
    await page.join();
    // The agent says more, and somebody else asks, while the page stands still.
    await emit(rpc, sessionId, { type: "RUN_STARTED", ...run("r2") });
    await emit(rpc, sessionId, { ...chunk, messageId: "a2", delta: "second" });
    await emit(rpc, sessionId, { type: "RUN_FINISHED", ...run("r2") });
    await say(rpc, sessionId, "waits");
    const { stop } = answering(sessionId);
    await ask(page, "u2", "two");
    await stop();
    const shown: readonly Shown[] = JSON.parse(
      (await rpc.unary(getTranscript, { sessionId })).messages,
    );
    expect(textsOf(shown).slice(0, 5)).toEqual(["one", "first", "second", "waits", "two"]);
  });
});
