/**
 * People talk to an agent over AG-UI: the clients of npm type, answer interrupts and results of their
 * own tools, and get the answers of a runner that claims turns. What a client shows is compared with
 * the rows, and with what a new client shows.
 */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { RunStatusSchema } from "@session-ledger/proto/ambient/v1/conversation_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { assistant, user } from "../support/agui-events.ts";
import {
  nextTurn as nextTurnAt,
  type Page,
  PAGE_CLIENTS,
  type PageClient,
  plain,
  type Shown,
  shows,
} from "../support/agui-pages.ts";
import { createdSession, newSession, rowsOf } from "../support/pushing.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { service, client: rpc } = useService();
const { service: impatient, client: impatientRpc } = useService("strict");
useQuietConsole();

const nextTurn = (...given: Rest<typeof nextTurnAt>) => nextTurnAt(service.grpcAddress, ...given);
type Rest<F> = F extends (first: never, ...rest: infer R) => unknown ? R : never;

/** The rows of people in the session, as they were pushed. */
async function typedRows(sessionId: string): Promise<readonly string[]> {
  const rows = await rowsOf(rpc, "messages", sessionId);
  return rows.filter(({ eventType }) => eventType === "user").map(({ payload }) => payload);
}

const inputSchema = z.object({
  messages: z.array(z.looseObject({ id: z.string(), role: z.string() })),
  tools: z.array(z.looseObject({ name: z.string() })).optional(),
});

/** Everything that a client shows that comes now. */
async function newcomer(client: PageClient, sessionId: string): Promise<readonly Shown[]> {
  const page = client.open(service.httpAddress, sessionId);
  await page.join();
  return plain(page.messages);
}

describe.each(PAGE_CLIENTS)("$name", (client) => {
  const open = (sessionId: string): Page => client.open(service.httpAddress, sessionId);

  test("types a message, and gets the answer of the run that takes it, token by token", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    for (const at of [1, 2]) {
      page.type(user(`u${at}`, `question ${at}`));
      const before = page.messages.map(({ content }) => content);
      const answered = page.run();
      const turn = await nextTurn(sessionId, `r${at}`);
      const [payload = ""] = turn.payloads;
      const { runId, ...input } = JSON.parse(payload);
      // The client's own id of its request.
      expect([typeof runId, turn.payloads.length]).toEqual(["string", 1]);
      const messages = [user(`u${at}`, `question ${at}`)];
      expect(JSON.stringify(input)).toBe(JSON.stringify({ threadId: sessionId, messages }));
      turn.start(`a${at}`, "ans");
      await shows(page, ...before, "ans");
      turn.end(`a${at}`, "wer");
      await turn.finish();
      await answered;
    }
    const expected = [
      user("u1", "question 1"),
      assistant("a1", "answer"),
      user("u2", "question 2"),
      assistant("a2", "answer"),
    ];
    expect(plain(page.messages)).toEqual(expected);
    expect(await newcomer(client, sessionId)).toEqual(expected);
    await page.run(); // Nothing is new.
    expect(plain(page.messages)).toEqual(expected);
    expect(await typedRows(sessionId)).toHaveLength(2);
  });

  test("reloads in the middle of the answer, and a second page that watches sees the same", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "question"));
    const left = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.start("a1", "one ");
    await shows(page, "question", "one ");
    await page.leave();
    await left;
    const [reloaded, watching] = [open(sessionId), open(sessionId)];
    const joined = [reloaded.join(), watching.join()];
    await shows(reloaded, "question", "one ");
    await shows(watching, "question", "one ");
    turn.end("a1", "two");
    await turn.finish();
    await Promise.all(joined);
    const expected = [user("u1", "question"), assistant("a1", "one two")];
    for (const one of [reloaded, watching]) expect(plain(one.messages)).toEqual(expected);
  });

  test("that asks again with the same message gets its answer, and nothing is stored twice", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "question"));
    const first = page.run();
    await expect.poll(() => typedRows(sessionId)).toHaveLength(1);
    await page.leave();
    await first;
    const again = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.start("a1", "one ");
    await shows(page, "question", "one ");
    const retried = open(sessionId);
    retried.type(user("u1", "question"));
    const joined = retried.run();
    await shows(retried, "question", "one ");
    turn.end("a1", "two");
    await turn.finish();
    await Promise.all([again, joined]);
    const expected = [user("u1", "question"), assistant("a1", "one two")];
    for (const one of [page, retried]) expect(plain(one.messages)).toEqual(expected);
    expect(await typedRows(sessionId)).toHaveLength(1);
  });

  test("that types while a run is open sees the rest of that run, and then its own answer", async () => {
    const sessionId = newSession();
    const [first, second] = [open(sessionId), open(sessionId)];
    first.type(user("u1", "one?"));
    const one = first.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.start("a1", "on");
    await shows(first, "one?", "on");
    second.type(user("u2", "two?"));
    const two = second.run();
    await shows(second, "one?", "on", "two?");
    turn.end("a1", "e");
    await turn.finish();
    await one;
    await shows(second, "one?", "one", "two?");
    const next = await nextTurn(sessionId, "r2");
    expect(next.payloads).toHaveLength(1);
    next.start("a2", "tw");
    await shows(second, "one?", "one", "two?", "tw");
    next.end("a2", "o");
    await next.finish();
    await two;
    expect(plain(second.messages)).toEqual(await newcomer(client, sessionId));
  });

  test("of two pages that type at once, each gets the answer to its message, and shows one order", async () => {
    const sessionId = newSession();
    const pages = [open(sessionId), open(sessionId)] as const;
    const answers = pages.map((page, at) => {
      page.type(user(`u${at}`, `question ${at}`));
      return page.run();
    });
    await expect.poll(() => typedRows(sessionId)).toHaveLength(2);
    for (const runId of ["r1", "r2"]) {
      const turn = await nextTurn(sessionId, runId, { messagesMax: 1 });
      const [payload = ""] = turn.payloads;
      turn.end(`a-${runId}`, `answer to ${/question \d/.exec(payload)?.[0]}`);
      await turn.finish();
    }
    await Promise.all(answers);
    const all = await newcomer(client, sessionId);
    expect(new Set(all.map(({ content }) => content))).toEqual(
      new Set([0, 1].flatMap((at) => [`question ${at}`, `answer to question ${at}`])),
    );
    expect(all).toHaveLength(4);
    const last = pages.filter((page) => page.messages.length === 4);
    expect(last.length).toBeGreaterThan(0); // The other page was answered first, and is not told of the rest.
    for (const page of last) expect(plain(page.messages)).toEqual(all);
  });

  test("approves an interrupt, and nobody waits for it any longer once a run has taken the answer", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "delete it"));
    const asked = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.end("a1", "Sure?");
    const interrupts = [{ id: "i1", reason: "confirm", message: "Sure?" }];
    await turn.finish({ outcome: { type: "interrupt", interrupts } });
    await asked;
    expect(page.interrupts).toEqual(["i1"]);
    const resume = [{ interruptId: "i1", status: "resolved", payload: { yes: true } }] as const;
    const answered = page.run(resume);
    const next = await nextTurn(sessionId, "r2");
    expect(next.payloads.map((payload) => JSON.parse(payload))).toEqual([
      { threadId: sessionId, runId: expect.any(String), messages: [], resume },
    ]);
    next.start("a2", "do");
    await shows(page, "delete it", "Sure?", "do");
    const watching = open(sessionId);
    const joined = watching.join();
    await shows(watching, "delete it", "Sure?", "do");
    const transcript = await fetch(
      `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/transcript`,
    );
    expect(await transcript.json()).toMatchObject({ interrupts: [] });
    next.end("a2", "ne");
    await next.finish();
    await Promise.all([answered, joined]);
    for (const one of [page, watching]) {
      expect(one.interrupts).toEqual([]);
      expect(one.messages.map(({ content }) => content)).toEqual(["delete it", "Sure?", "done"]);
    }
    expect(await typedRows(sessionId)).toHaveLength(2);
  });

  test("shows the question of a graph again after a reload, and answers it", async () => {
    // Bug: it was in no snapshot, and the answer was thrown away, because it is no message.
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "delete it"));
    const asked = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.end("a1", "Sure?");
    const value = '{"question":"Delete it?"}';
    // As `@ag-ui/langgraph` asks.
    turn.event({ type: "CUSTOM", name: "on_interrupt", value, rawEvent: { id: "i1", value } });
    turn.event({ type: "STATE_SNAPSHOT", snapshot: { a: 1 } });
    await turn.finish();
    await asked;
    expect(page.questions).toEqual([value]);
    const reloaded = open(sessionId);
    await reloaded.join();
    expect(reloaded.questions).toEqual([value]);
    const answered = reloaded.resumeGraph({ yes: true });
    const next = await nextTurn(sessionId, "r2");
    const [payload = ""] = next.payloads;
    expect(JSON.parse(payload)).toMatchObject({
      messages: [],
      forwardedProps: { command: { resume: { yes: true } } },
    });
    next.start("a2", "do");
    const watching = open(sessionId);
    const joined = watching.join();
    await shows(watching, "delete it", "Sure?", "do");
    next.end("a2", "ne");
    await next.finish();
    await Promise.all([answered, joined]);
    const late = open(sessionId);
    await late.join();
    for (const one of [reloaded, watching, late]) {
      expect(one.questions).toEqual([]);
      expect(one.messages.map(({ content }) => content)).toEqual(["delete it", "Sure?", "done"]);
    }
    expect(await typedRows(sessionId)).toHaveLength(2);
  });

  test("calls a tool of the page, and gets the answer to its result", async () => {
    const sessionId = newSession();
    const tool = { name: "pick", handler: async () => "red" };
    const page = client.open(service.httpAddress, sessionId, [tool]);
    page.type(user("u1", "Which colour?"));
    const asked = page.run();
    const turn = await nextTurn(sessionId, "r1");
    const { tools = [] } = inputSchema.parse(JSON.parse(turn.payloads[0] ?? ""));
    expect(tools.map(({ name }) => name)).toEqual(client.callsTools ? ["pick"] : []);
    const call = { toolCallId: "c1", toolCallName: "pick", parentMessageId: "a1" };
    turn.event({ type: "TOOL_CALL_START", ...call });
    turn.event({ type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: "{}" });
    turn.event({ type: "TOOL_CALL_END", toolCallId: "c1" });
    turn.end("a2", "Wait.");
    await turn.finish();
    if (!client.callsTools) {
      await asked;
      page.type({ id: "t1", role: "tool", toolCallId: "c1", content: "red" });
    }
    const answered = client.callsTools ? asked : page.run();
    const next = await nextTurn(sessionId, "r2");
    const { messages } = inputSchema.parse(JSON.parse(next.payloads[0] ?? ""));
    expect(messages).toMatchObject([{ role: "tool", toolCallId: "c1", content: "red" }]);
    next.end("a3", "It is red.");
    await next.finish();
    await answered;
    const expected = [
      { role: "user", content: "Which colour?" },
      { id: "a1", role: "assistant" },
      { id: messages[0]?.id, role: "tool", content: "red" },
      { id: "a2", content: "Wait." },
      { id: "a3", content: "It is red." },
    ];
    expect(page.messages).toMatchObject(expected);
    expect(await newcomer(client, sessionId)).toEqual(plain(page.messages));
    expect(await typedRows(sessionId)).toHaveLength(2);
  });

  test("gets no answer without a runner: NO_RUNNER, and a runner that comes later finds the message", async () => {
    const sessionId = await createdSession(impatientRpc);
    const page = client.open(impatient.httpAddress, sessionId);
    page.type(user("u1", "question"));
    await page.run().catch(() => undefined);
    expect(page.codes).toEqual(["NO_RUNNER"]);
    expect(plain(page.messages)).toEqual([user("u1", "question")]);
    const turn = await nextTurnAt(impatient.grpcAddress, sessionId, "r1");
    turn.end("a1", "late");
    await turn.finish();
    await page.join();
    expect(plain(page.messages)).toEqual([user("u1", "question"), assistant("a1", "late")]);
  });
});

test("the run of an approval that a person types past is unanswered, and that of an answered one is not", async () => {
  // Bug: both were interrupted for ever, which reads as "waits for an answer".
  const statuses = async (sessionId: string) => {
    const { runs } = await rpc.unary(SessionService.method.listRuns, { sessionId });
    const path = `/api/ambient/v1/sessions/${sessionId}/runs`;
    const listed = z
      .object({ items: z.array(z.object({ status: z.string() })) })
      .parse(await (await fetch(`http://${service.httpAddress}${path}`)).json());
    const words = listed.items.map(({ status }) => status);
    const names = runs.map(({ status }) => RunStatusSchema.value[status]?.localName.toLowerCase());
    expect(names).toEqual(words);
    return words;
  };
  const answer = { messages: [], resume: [{ interruptId: "i1", status: "resolved" }] };
  for (const [payload, status] of [
    ["never mind", "unanswered"],
    [JSON.stringify(answer), "interrupted"],
  ] as const) {
    const sessionId = newSession();
    const ids = { threadId: sessionId, runId: "r1" };
    const interrupts = [{ id: "i1", reason: "tool_call", toolCallId: "c1" }];
    await emit(rpc, sessionId, { type: "RUN_STARTED", ...ids });
    await emit(rpc, sessionId, {
      type: "RUN_FINISHED",
      ...ids,
      outcome: { type: "interrupt", interrupts },
    });
    expect(await statuses(sessionId)).toEqual(["interrupted"]);
    await say(rpc, sessionId, payload);
    await claim(rpc, { sessionId, runId: "r2" });
    expect(await statuses(sessionId)).toEqual(["interrupted", "running"]);
    await finish(rpc, sessionId, "r2");
    expect(await statuses(sessionId)).toEqual([status, "finished"]);
  }
});
