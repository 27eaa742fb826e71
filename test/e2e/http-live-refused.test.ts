/** Streams over HTTP that are not to be had: each is an error answer that says why, and no stream that ends. */
import type { Socket } from "node:net";
import { beforeAll, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { API, ask, Received } from "../support/http-clients.ts";
import { newSession, push } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

/** Of profile limited. */
const WATCHERS_MAX = 20;

const known = newSession();
const deleted = newSession();
const { service: strict } = useService("strict");
const { service: limited } = useService("limited");
const { service, client } = useService();

beforeAll(async () => {
  for (const sessionId of [known, deleted]) {
    await push(client, "messages", { sessionId });
    await push(client, "events", { sessionId });
  }
  await client.unary(SessionService.method.deleteSession, { id: deleted });
});

function urlOf(address: string, sessionId: string, rest: string): string {
  return `http://${address}${API}/sessions/${sessionId}/${rest}`;
}

const wrong: readonly (readonly [string, string, number, string])[] = [
  ["after_seq=x", "", 400, "after_seq"],
  ["after_seq=2", "", 400, "after_seq"],
  ["after_seq=9223372036854775807", "", 400, "after_seq"],
  ["state_frames=1", "", 400, "state_frames"],
  ["limit=1", "", 400, "limit"], // Once the messages' stream took it and went on without an end.
  ["", "-1", 400, "Last-Event-ID"],
  ["", "x", 400, "Last-Event-ID"],
  ["", "1, 1", 400, "Last-Event-ID"],
  ["after_seq=0", "2", 400, "Last-Event-ID"],
];
const cases = ["messages", "events"].flatMap((stream) =>
  wrong.map((one) => [stream, ...one] as const),
);
test.each(cases)(
  "%s?%s Last-Event-ID: %s is %i and names %s",
  async (stream, query, id, status, field) => {
    const headers = {
      accept: "text/event-stream",
      ...(id === "" ? {} : { "last-event-id": id }),
    };
    const answer = await fetch(urlOf(service.httpAddress, known, `${stream}?${query}`), {
      headers,
    });
    expect(answer.headers.get("content-type")).toBe("application/problem+json");
    expect(await answer.json()).toMatchObject({ status, violations: [{ field }] });
    expect(answer.status).toBe(status);
  },
);

test.each(["messages", "events"])(
  "%s of a session that is deleted, or cannot be one",
  async (stream) => {
    const headers = { accept: "text/event-stream" };
    const answers = await Promise.all(
      [deleted, "a%20b", "x".repeat(129)].map((id) =>
        fetch(urlOf(service.httpAddress, id, stream), { headers }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual([404, 400, 400]);
    expect(await answers[0]?.json()).toMatchObject({ reason: "SESSION_DELETED" });
    expect(await answers[1]?.json()).toMatchObject({ violations: [{ field: "id" }] });
    await answers[2]?.body?.cancel();
  },
);

test("a watch above the limit is 429 with Retry-After", async () => {
  const sessionId = newSession();
  const path = `${API}/sessions/${sessionId}/events`;
  const sockets = await Promise.all(
    Array.from({ length: WATCHERS_MAX }, () => ask(limited.httpAddress, path)),
  );
  await Promise.all(sockets.map(untilAnswered));
  const answer = await fetch(`http://${limited.httpAddress}${path}`);
  expect(answer.status).toBe(429);
  expect(answer.headers.get("retry-after")).toBe("1");
  expect(await answer.json()).toMatchObject({ reason: "TOO_MANY_WATCHERS" });
  for (const socket of sockets) socket.destroy();
});

test("a watch of an unknown session in strict mode is 404", async () => {
  const headers = { accept: "text/event-stream" };
  for (const stream of ["messages", "events"]) {
    const answer = await fetch(urlOf(strict.httpAddress, newSession(), stream), { headers });
    expect(answer.status).toBe(404);
    expect(await answer.json()).toMatchObject({ reason: "SESSION_NOT_FOUND" });
  }
});

async function untilAnswered(socket: Socket): Promise<void> {
  const received = new Received(socket);
  await expect.poll(() => received.text).toContain("\r\n\r\n");
}
