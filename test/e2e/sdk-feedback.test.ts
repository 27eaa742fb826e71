/** The follower of feedback with a service, and a server that takes scores as Langfuse does. */
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createLedgerClient } from "@session-ledger/runner/internal/client";
import {
  fileCursor,
  followFeedback,
  langfuseScores,
} from "@session-ledger/runner/internal/sdk/feedback";
import { newSession } from "../support/pushing.ts";
import { emit } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { giveFeedback } = SessionService.method;
// A ledger of its own: a follower reads the feedback of all sessions.
const { service, client } = useService({});

/** Answers with the status for a trace; the default is 200. */
async function scores(statusOf: (traceId: unknown) => number = () => 200) {
  const taken: { readonly headers: unknown; readonly body: Record<string, unknown> }[] = [];
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = JSON.parse(await text(request));
    const status = statusOf(body.traceId);
    const headers = [request.url, request.headers.authorization];
    if (status === 200) taken.push({ headers, body });
    response.writeHead(status).end("{}");
  };
  const server = createServer((request, response) => void take(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  return { taken, baseUrl: `http://127.0.0.1:${port}/` };
}

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "session-ledger-test-"));
  onTestFinished(() => rm(path, { recursive: true }));
  return path;
}

/** Follows until it is stopped. */
function follow(baseUrl: string, file: string) {
  const ledgerClient = createLedgerClient({ address: service.grpcAddress });
  const stopping = new AbortController();
  const problems: string[] = [];
  const ended = followFeedback({
    client: ledgerClient,
    cursor: fileCursor(file),
    score: langfuseScores({ baseUrl, publicKey: "pk", secretKey: "sk" }),
    signal: stopping.signal,
    onProblem: (message) => problems.push(message),
  });
  const stop = async (): Promise<void> => {
    stopping.abort();
    await ended;
    ledgerClient.close();
  };
  onTestFinished(stop);
  return { problems, stop };
}

/** A run that said the message `NAME`, with a trace. */
async function answered(name: string, traceId?: string): Promise<string> {
  const sessionId = newSession();
  const run = { threadId: "t", runId: `run-${name}` };
  const metadata = traceId === undefined ? {} : { traceId };
  await emit(client, sessionId, { type: "RUN_STARTED", ...run, metadata });
  const said = { messageId: name, role: "assistant", delta: "42" };
  for (const type of ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"])
    await emit(client, sessionId, { type, ...said });
  await emit(client, sessionId, { type: "RUN_FINISHED", ...run });
  return sessionId;
}

function give(sessionId: string, messageId: string, kind: string, more: object = {}) {
  return client.unary(giveFeedback, { sessionId, messageId, kind, ...more });
}

test("a thumb is the score of its trace, once, also after a restart and a changed mind", async () => {
  const statuses = [503];
  const { taken, baseUrl } = await scores(() => statuses.pop() ?? 200);
  const file = join(await folder(), "cursor");
  const one = await answered("one", "a".repeat(32));
  await give(one, "one", "thumbs_up", { comment: "exactly" });
  const first = follow(baseUrl, file);
  await expect.poll(() => taken.length).toBe(1);
  expect(taken[0]).toEqual({
    headers: ["/api/public/scores", `Basic ${btoa("pk:sk")}`],
    body: {
      id: expect.stringMatching(/^[0-9a-f]{32}$/),
      traceId: "a".repeat(32),
      name: "user-feedback",
      dataType: "BOOLEAN",
      value: 1,
      comment: "exactly",
      metadata: { sessionId: one, messageId: "one", userId: expect.any(String) },
    },
  });
  expect(first.problems).toEqual([expect.stringContaining("503")]);
  const before = await readFile(file, "utf8").catch(() => "");
  await expect.poll(() => readFile(file, "utf8").catch(() => "")).not.toBe("");
  await first.stop();

  // What came meanwhile, and nothing twice.
  await give(one, "one", "thumbs_down");
  const second = follow(baseUrl, file);
  await expect.poll(() => taken.length).toBe(2);
  expect(taken[1]?.body).toMatchObject({ id: taken[0]?.body["id"], value: 0 });
  await expect.poll(() => readFile(file, "utf8")).not.toBe(before);
  await second.stop();
});

test("a page's own trace counts, and feedback without a trace or a thumb is passed over", async () => {
  const { taken, baseUrl } = await scores((traceId) => (traceId === "b".repeat(32) ? 400 : 200));
  const file = join(await folder(), "cursor");
  const untraced = await answered("untraced");
  const refused = await answered("refused", "b".repeat(32));
  const other = await answered("other", "c".repeat(32));
  await give(untraced, "untraced", "thumbs_up");
  await give(other, "other", "star");
  await give(refused, "refused", "thumbs_up");
  await give(untraced, "untraced", "thumbs_down", { traceId: "d".repeat(32) });
  const { problems } = follow(baseUrl, file);
  const own = [untraced, refused, other];
  const ofTest = () => taken.filter(({ body }) => own.includes(Object(body["metadata"]).sessionId));
  await expect.poll(() => ofTest().length).toBe(1);
  expect(ofTest()[0]?.body).toMatchObject({ traceId: "d".repeat(32), value: 0 });
  expect(problems.join()).toContain("400");
});

test("a follower rejects when the service refuses its cursor", async () => {
  const ledgerClient = createLedgerClient({ address: service.grpcAddress });
  onTestFinished(() => ledgerClient.close());
  const following = followFeedback({
    client: ledgerClient,
    cursor: { load: () => Promise.resolve("not a cursor"), save: () => Promise.resolve() },
    score: () => Promise.resolve(),
    signal: new AbortController().signal,
  });
  await expect(following).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
});
