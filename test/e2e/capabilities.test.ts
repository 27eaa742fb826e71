/** The capabilities of an agent: how a runner sets them, and how readers and AG-UI clients get them. */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import type { RpcClient } from "../support/grpc-client.ts";
import { failureOf, newSession } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { createSession, getSession, listSessions, pushSessionEvent, updateSessionStatus } =
  SessionService.method;

const { service, client } = useService();
const { client: redacting } = useService("strict");

/** One field of each of the ten categories. */
const CAPABILITIES = {
  identity: { name: "Ann", version: "1.2" },
  transport: { streaming: true },
  tools: { supported: true, items: [{ name: "search", description: "Finds pages." }] },
  output: { structuredOutput: false },
  state: { snapshots: true },
  multiAgent: { supported: false },
  reasoning: { supported: true },
  multimodal: { input: { image: true } },
  execution: { maxIterations: 12 },
  humanInTheLoop: { feedback: true },
  custom: { ours: { nested: [1, 2] } },
  unknown: "kept",
};

async function create(
  capabilities?: string,
  { of = client, ...fields }: { readonly of?: RpcClient; readonly projectId?: string } = {},
): Promise<string> {
  const { metadata } = await of.unary(createSession, { name: "a session", ...fields });
  const id = metadata?.id ?? "";
  if (capabilities !== undefined) await of.unary(updateSessionStatus, { id, capabilities });
  return id;
}

async function push(sessionId: string, type: string): Promise<void> {
  const payload = JSON.stringify({ type, threadId: "t", runId: "r1" });
  await client.unary(pushSessionEvent, { sessionId, eventType: type, payload });
}

describe("capabilities", () => {
  test("are kept byte for byte, and stay through a status without them", async () => {
    const capabilities = JSON.stringify(CAPABILITIES, undefined, 1);
    const id = await create(capabilities);
    expect(await client.unary(getSession, { id })).toMatchObject({ capabilities });
    await client.unary(updateSessionStatus, { id, phase: "Running" });
    expect(await client.unary(getSession, { id })).toMatchObject({ capabilities });
    const read = await fetch(`http://${service.httpAddress}/api/ambient/v1/sessions/${id}`);
    expect(await read.json()).toMatchObject({ capabilities });
  });

  test("are set over HTTP as an object or a text, and a wrong one names its path", async () => {
    const id = await create();
    const patch = (body: object) =>
      fetch(`http://${service.httpAddress}/api/ambient/v1/sessions/${id}/status`, {
        method: "PATCH",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const startTime = "2026-01-01T00:00:00.000001Z";
    const set = await patch({ phase: "Running", startTime, capabilities: CAPABILITIES });
    const capabilities = JSON.stringify(CAPABILITIES);
    expect([set.status, await set.json()]).toMatchObject([
      200,
      { phase: "Running", startTime, capabilities },
    ]);
    const text = await patch({ capabilities: '{ "tools": {} }' });
    expect(await text.json()).toMatchObject({ phase: "Running", capabilities: '{ "tools": {} }' });
    for (const [body, field] of [
      [{ capabilities: { transport: { streaming: 1 } } }, "capabilities.transport.streaming"],
      [{ capabilities: 1 }, "capabilities"],
      [{ phase: "running" }, "phase"],
      [{ startTime, completionTime: "2025-01-01T00:00:00Z" }, "completionTime"],
      [{ completionTime: "noon" }, "completionTime"],
      [{ name: "x" }, "name"],
    ] as const) {
      const refused = await patch(body);
      expect([refused.status, await refused.json()]).toMatchObject([
        400,
        { violations: [{ field }] },
      ]);
    }
    const removed: unknown = await (await patch({ capabilities: "" })).json();
    expect(removed).not.toHaveProperty("capabilities");
  });

  test("are absent in a new session, and after an empty text", async () => {
    const id = await create();
    expect((await client.unary(getSession, { id })).capabilities).toBeUndefined();
    await client.unary(updateSessionStatus, { id, capabilities: "{}" });
    await client.unary(updateSessionStatus, { id, capabilities: "" });
    expect((await client.unary(getSession, { id })).capabilities).toBeUndefined();
  });

  test("have their secrets masked, and stay JSON", async () => {
    const token = `ghp_${"a".repeat(36)}`;
    const id = await create(JSON.stringify({ custom: { token } }), { of: redacting });
    const { capabilities = "" } = await redacting.unary(getSession, { id });
    expect(JSON.parse(capabilities)).toEqual({ custom: { token: `ghp_${"*".repeat(36)}` } });
  });

  test.each([
    { title: "text that is not JSON", text: "streaming", field: "capabilities" },
    { title: "a list", text: "[]", field: "capabilities" },
    { title: "a key twice", text: '{"tools":{},"tools":{}}', field: "capabilities.tools" },
    {
      title: "a wrong kind of value",
      text: '{"transport":{"streaming":"yes"}}',
      field: "capabilities.transport.streaming",
    },
    {
      title: "a wrong tool",
      text: '{"tools":{"items":[{"name":"a","description":"b"},{"name":1,"description":"b"}]}}',
      field: "capabilities.tools.items[1].name",
    },
    {
      title: "more than 64 KiB",
      text: JSON.stringify({ custom: { text: "x".repeat(65_536) } }),
      field: "capabilities",
    },
  ])("are refused with $title, and nothing is changed", async ({ text, field }) => {
    const id = await create("{}");
    const before = await client.unary(getSession, { id });
    const failure = await failureOf(
      client.unary(updateSessionStatus, { id, phase: "Failed", capabilities: text }),
    );
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", violations: [{ field }] });
    expect(await client.unary(getSession, { id })).toEqual(before);
  });

  test("are left out of a page that would be too large, as labels are", async () => {
    const [labels, projectId] = ["{}", newSession()];
    const { metadata } = await client.unary(createSession, { name: "small", labels, projectId });
    const id = metadata?.id ?? "";
    await client.unary(updateSessionStatus, { id, capabilities: "{}" });
    const listed = await client.unary(listSessions, { projectId, size: 1 });
    expect(listed.items).toMatchObject([{ labels, capabilities: "{}" }]);
    const large = JSON.stringify({ custom: { text: "x".repeat(65_000) } });
    for (let count = 0; count < 50; count += 1) await create(large, { projectId });
    const { items } = await client.unary(listSessions, { projectId, size: 51 });
    expect(items).toHaveLength(51);
    expect(items.filter((one) => one.capabilities !== undefined)).toEqual([]);
    expect(items.filter((one) => one.labels !== undefined)).toEqual([]);
  });
});

describe.each(AGUI_CLIENTS)("$name", (agui) => {
  useQuietConsole();

  test.each([
    { title: "an open run", types: ["RUN_STARTED"] },
    { title: "a run that has ended", types: ["RUN_STARTED", "RUN_FINISHED"] },
  ])("gets the capabilities when it joins $title", async ({ types }) => {
    const id = newSession();
    for (const type of types) await push(id, type);
    await client.unary(updateSessionStatus, { id, capabilities: JSON.stringify(CAPABILITIES) });
    const events: object[] = [];
    const joined = agui.open(service.httpAddress, id).connect({
      onEvent(_, event) {
        events.push(event);
        if (types.length === 1 && "name" in event) void push(id, "RUN_FINISHED");
      },
    });
    await joined;
    expect(events).toMatchObject([
      { type: "RUN_STARTED" },
      { type: "MESSAGES_SNAPSHOT" },
      { type: "CUSTOM", name: "ambient:capabilities", value: CAPABILITIES },
      { type: "RUN_FINISHED" },
    ]);
  });
});
