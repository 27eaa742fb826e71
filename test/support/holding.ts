/**
 * Eleven ways to make the service hold memory, or a place, for a caller that does not move. The caller runs
 * in a thread of its own (holding-worker.ts). Here are the sessions with large rows that the ways need,
 * the start and end of a way, and the calls of another caller meanwhile.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient, RpcFailure } from "./grpc-client.ts";
import { CAP_MS, pace } from "./eventually.ts";

/** The calls in flight of each way under the default limits of the service. */
export const WAYS = {
  "unread transcripts": 60,
  "unary answers on closed windows": 900,
  "bodies that do not end": 700,
  "unread watches": 1_000,
  "unread event streams": 1_000,
  "requests that do not end": 60_000,
  "idle watches": 4_096,
  "idle push streams": 1_000,
  "unread exports": 64,
  "replays that follow": 8,
  "waiting claims": 600,
} as const;
export type Way = keyof typeof WAYS;
export const WAY_NAMES = Object.keys(WAYS).filter((name): name is Way => name in WAYS);

/** One session for transcripts and exports; watches use many sessions, because each has a limit. */
export const LARGE = "hostile-large";
export const SPREAD_SESSIONS = 16;

export function spreadSession(at: number): string {
  return `hostile-${at % SPREAD_SESSIONS}`;
}

export interface HoldingOrder {
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly token: string;
  readonly way: Way;
  /** Number of calls; each HTTP call has its own connection. */
  readonly calls: number;
  /** The body of a request without its last byte. */
  readonly bodyBytes: number;
  /** Time from the first call: calls that have not begun by then are given up. */
  readonly openLimitMs: number;
}

const reportSchema = z.object({
  /** Answers and ends by status: the number for HTTP, `grpc` and the number for gRPC. */
  ends: z.record(z.string(), z.number()),
  sentBytes: z.number(),
  connections: z.number(),
});
export type HoldingReport = z.infer<typeof reportSchema>;

export class Holding implements AsyncDisposable {
  /** Resolves when every call that will begin has begun. */
  readonly held: Promise<HoldingReport>;
  readonly #worker: Worker;

  constructor(order: HoldingOrder) {
    this.#worker = new Worker(new URL("holding-worker.ts", import.meta.url), {
      workerData: order,
      resourceLimits: { maxOldGenerationSizeMb: 4_096 },
    });
    this.held = once(this.#worker, "message").then(([report]) => reportSchema.parse(report));
    this.held.catch(() => undefined); // Looked at by who waits for it.
  }

  /** The caller closes all its connections. */
  async leave(): Promise<HoldingReport> {
    const last = once(this.#worker, "message");
    this.#worker.postMessage("leave");
    const [report]: readonly unknown[] = await last;
    return reportSchema.parse(report);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}

export interface Prepared {
  /** Rows of a megabyte in the one large session. */
  readonly largeRows: number;
  /** Rows of the largest size in each of the others. */
  readonly spreadRows: number;
}

const ROW_BYTES = 1_000_000;
/** With the rest of its event, just below the largest payload by default. */
const LARGEST_ROW_BYTES = 4_169_800;

/** Fills the sessions that the ways read. */
export async function prepare(
  client: RpcClient,
  token: string,
  { largeRows, spreadRows }: Prepared,
): Promise<void> {
  const rows = (sessionId: string, count: number, bytes: number) =>
    Array.from({ length: count }, () => ({ sessionId, bytes }));
  const spread = Array.from({ length: SPREAD_SESSIONS }, (_, at) => spreadSession(at));
  const all = [
    ...rows(LARGE, largeRows, ROW_BYTES),
    ...spread.flatMap((sessionId) => rows(sessionId, spreadRows, LARGEST_ROW_BYTES)),
  ];
  for (const [at, { sessionId, bytes }] of all.entries()) {
    const payload = `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m${at}","role":"assistant","delta":"${"x".repeat(bytes)}"}`;
    const request = { sessionId, eventType: "TEXT_MESSAGE_CHUNK", payload };
    await client.unary(SessionService.method.pushSessionEvent, request, as(token, 60_000));
  }
}

/** `served` if another caller still gets its call, or the reason why not. */
export async function anotherGets(
  way: Way,
  { grpcAddress, httpAddress, token }: Pick<HoldingOrder, "grpcAddress" | "httpAddress" | "token">,
): Promise<string> {
  switch (way) {
    case "unread transcripts":
      return fetched(`http://${httpAddress}${API}/sessions/${spreadSession(0)}/transcript`, token);
    case "unread exports":
      return fetched(`http://${httpAddress}${API}/sessions/${spreadSession(0)}/export`, token);
    case "unread event streams":
      return fetched(`http://${httpAddress}${API}/sessions/another/events`, token);
    case "replays that follow":
      return fetched(`http://${httpAddress}/agui/sessions/${spreadSession(0)}?${REPLAY}`, token, {
        method: "POST",
        body: "{}",
      });
    case "bodies that do not end":
      return fetched(`http://${httpAddress}${API}/sessions/another/messages`, token, {
        method: "POST",
        body: JSON.stringify({ event_type: "user", payload: "hello" }),
      });
    case "unread watches":
    case "idle watches":
      return streamed(grpcAddress, async (client) => {
        const request = { sessionId: "another", stateFrames: true };
        const call = SessionService.method.watchSessionEvents;
        await client.serverStream(call, request, as(token)).next();
      });
    case "idle push streams":
      return streamed(grpcAddress, async (client) => {
        const stream = client.bidiStream(SessionService.method.pushSessionEvents, as(token));
        stream.send({ frame: { case: "open", value: { sessionId: "another" } } });
        await stream.next();
      });
    case "waiting claims":
    case "unary answers on closed windows":
    case "requests that do not end":
      return streamed(grpcAddress, (client) => {
        const request = { sessionId: spreadSession(0), pageSize: 1 };
        return client.unary(SessionService.method.listSessionEvents, request, as(token));
      });
  }
}

export const API = "/api/ambient/v1";
export const REPLAY = "replay=events&follow=true";

function as(token: string, deadlineMs = CAP_MS) {
  return { metadata: { authorization: `Bearer ${token}` }, deadlineMs };
}

async function fetched(url: string, token: string, init: RequestInit = {}): Promise<string> {
  const leave = new AbortController();
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  try {
    const answer = await fetch(url, {
      ...init,
      headers,
      signal: AbortSignal.any([leave.signal, AbortSignal.timeout(CAP_MS)]),
    });
    return answer.ok ? "served" : `${answer.status} ${await answer.text()}`;
  } catch (error) {
    return String(error);
  } finally {
    leave.abort();
  }
}

async function streamed(
  address: string,
  ask: (client: RpcClient) => Promise<unknown>,
): Promise<string> {
  const client = new RpcClient(address, { "grpc.max_receive_message_length": -1 });
  try {
    await ask(client);
    return "served";
  } catch (error) {
    return error instanceof RpcFailure ? `${error.code} ${error.reason}` : String(error);
  } finally {
    client.close();
  }
}

const PUSH_INTERVAL_MS = 20;
/** Only answers are asserted here; the benchmark measures their speed. */
const DEADLINE_MS = 30_000;
const PAYLOAD_BYTES = 1_024;

/** Pushes a small row, waits for the answer and pauses a little, as agents do. */
export class WellBehavedRunner {
  readonly sessionId = "well-behaved";
  readonly latenciesMs: number[] = [];
  readonly failures: string[] = [];
  readonly acknowledged = new Set<number>();
  readonly #client: RpcClient;
  readonly #token: string;

  constructor(client: RpcClient, token: string) {
    this.#client = client;
    this.#token = token;
  }

  pushFor(spanMs: number): Promise<void> {
    const endMs = performance.now() + spanMs;
    return this.pushWhile(() => performance.now() < endMs);
  }

  async pushWhile(isRunning: () => boolean): Promise<void> {
    while (isRunning()) {
      const startMs = performance.now();
      await this.#push();
      this.latenciesMs.push(performance.now() - startMs);
      await pace(PUSH_INTERVAL_MS);
    }
  }

  async #push(): Promise<void> {
    const { sessionId } = this;
    const request = { sessionId, eventType: "assistant", payload: "y".repeat(PAYLOAD_BYTES) };
    try {
      const { seq } = await this.#client.unary(SessionService.method.pushSessionMessage, request, {
        metadata: { authorization: `Bearer ${this.#token}` },
        deadlineMs: DEADLINE_MS,
      });
      this.acknowledged.add(Number(seq));
    } catch (error) {
      this.failures.push(String(error));
    }
  }
}
