/**
 * A client with gRPC's default limit of 4 MiB a message can read everything that was accepted: every
 * answer, every page, every row of a watch. A page of large rows ends sooner, and the next one follows.
 */
import { describe, expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { newSession, push, type PushFields, type Stream } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { listSessionEvents, listSessionMessages } = SessionService.method;

const { client } = useService();

const MEBIBYTE = 1_048_576;

/** Rows a page, to the end of the session. */
async function pagesOf(stream: Stream, sessionId: string): Promise<readonly number[]> {
  const pages: number[] = [];
  for (let afterSeq = 0n; ; ) {
    const page =
      stream === "messages"
        ? await client.unary(listSessionMessages, { sessionId, afterSeq })
        : await client.unary(listSessionEvents, { sessionId, afterSeq });
    pages.push(page.items.length);
    if (!page.hasMore) return pages;
    afterSeq = page.nextAfterSeq;
  }
}

describe("a page ends at 3 MiB and a client can read it", () => {
  test("with payloads of a million bytes", async () => {
    const sessionId = newSession();
    const payload = "x".repeat(1_000_000);
    for (let n = 0; n < 7; n += 1) await push(client, "messages", { sessionId, payload });
    const pages = await pagesOf("messages", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(7);
    expect(pages.length).toBeGreaterThanOrEqual(2);
    expect(Math.max(...pages)).toBeLessThanOrEqual(4);
  });

  test("with payloads just short of 3 MiB before the largest one", async () => {
    const sessionId = newSession();
    const three = "x".repeat(MEBIBYTE - 1);
    for (const payload of [three, three, three, "x".repeat(MEBIBYTE)]) {
      await push(client, "messages", { sessionId, payload });
    }
    const pages = await pagesOf("messages", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(4);
  });

  test("with rows that have small payloads and large fragment indexes", async () => {
    const sessionId = newSession();
    const eventCount = 400_000;
    const row: PushFields = {
      eventType: "TEXT_MESSAGE_CHUNK",
      payload: '{"type":"TEXT_MESSAGE_CHUNK","delta":"","timestamp":1}',
      eventCount,
      fragments: {
        lengths: Array.from({ length: eventCount }, () => 1),
        timestampDeltasMs: Array.from({ length: eventCount - 1 }, () => 1n << 30n),
      },
    };
    for (let n = 0; n < 3; n += 1) await push(client, "events", { sessionId, ...row });
    const pages = await pagesOf("events", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(3);
  });

  test("with messages that have large senders", async () => {
    const sessionId = newSession();
    const sender = { displayName: "x".repeat(2_000_000) };
    // A sender this large may as well be refused; what is stored must be readable.
    const pushes = [1, 2, 3].map(() => push(client, "messages", { sessionId, sender }));
    const stored = (await Promise.allSettled(pushes)).filter(
      ({ status }) => status === "fulfilled",
    );
    await push(client, "messages", { sessionId });
    const pages = await pagesOf("messages", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(stored.length + 1);
  });
});

test("the answer and the row of the largest accepted request can be read", async () => {
  const sessionId = newSession();
  await push(client, "messages", { sessionId });
  const sender = { displayName: "x".repeat(4 * MEBIBYTE - 100) };
  const answer = await push(client, "messages", { sessionId, sender }).catch((error) => error);
  const refused = { domain: "session-ledger" }; // A status of the service, and not of the client.
  expect(answer).toMatchObject("seq" in answer ? { seq: 2n } : refused);
  const pages = await pagesOf("messages", sessionId);
  expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe("seq" in answer ? 2 : 1);
});

test("a page of sessions can be read with prompts of any size", async () => {
  const { createSession, listSessions } = SessionService.method;
  const prompt = "x".repeat(MEBIBYTE);
  const projectId = newSession();
  for (let n = 0; n < 5; n += 1) {
    await client.unary(createSession, { name: `${n}`, prompt, projectId });
  }
  const found = new Set<string>();
  let page = await client.unary(listSessions, { page: 1, projectId });
  expect(page.metadata?.total).toBe(5);
  for (let number = 2; page.items.length > 0; number += 1) {
    for (const session of page.items) found.add(session.metadata?.id ?? "");
    page = await client.unary(listSessions, { page: number, projectId });
  }
  expect(found.size).toBe(5);
});
