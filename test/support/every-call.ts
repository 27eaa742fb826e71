/** Every RPC and every route, called by any given caller, with the outcome in one word. */
import { readFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import { request as httpRequest } from "node:http";
import { connect, type IncomingHttpHeaders } from "node:http2";
import {
  create,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  toBinary,
} from "@bufbuild/protobuf";
import type { ServiceError as GrpcError } from "@grpc/grpc-js";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type CallOptions, RpcClient, RpcFailure } from "./grpc-client.ts";
import { frame } from "./http2-frames.ts";

export interface Answer {
  /** OK, the name of a gRPC status, or EMPTY: a stream without an event, which ended. */
  readonly outcome: string;
  /** All of a refusal that a caller can see, without the session id. */
  readonly seen: string;
}

export interface Call {
  /** The name in the table, and the requested part. */
  readonly name: string;
  readonly of: "rpc" | "route";
  /** The name in the table. */
  readonly entry: string;
  readonly messageType: "user" | "assistant" | undefined;
  /** The call names the one session that it gets. */
  readonly hasSession: boolean;
  /** The call deletes the session. */
  readonly destroys: boolean;
  /** The outcome for an unknown session, for a caller that may see everything. */
  readonly unknown: "OK" | "EMPTY" | "NOT_FOUND";
}

type Request = Readonly<Record<string, unknown>>;

const JSON_HEADERS = { "content-type": "application/json" };
const API = "/api/ambient/v1";
const RUN = {
  threadId: "t",
  runId: "r",
  state: {},
  messages: [],
  tools: [],
  context: [],
  forwardedProps: {},
};

/** A request of each method. The word after a space names the variant. */
export const REQUESTS: Readonly<Record<string, (id: string) => Request>> = {
  GetSession: (id) => ({ id }),
  CreateSession: () => ({ name: "walked" }),
  ForkSession: (sessionId) => ({ sessionId, atMessageSeq: 1n }),
  UpdateSession: (id) => ({ id, annotations: "walked" }),
  UpdateSessionStatus: (id) => ({ id, phase: "Running" }),
  DeleteSession: (id) => ({ id }),
  ListSessions: () => ({ size: 1 }),
  WatchSessions: () => ({ stateFrames: true }),
  "PushSessionMessage user": (sessionId) => ({ sessionId, eventType: "user", payload: "hi" }),
  "PushSessionMessage assistant": (sessionId) => ({
    sessionId,
    eventType: "assistant",
    payload: "hi",
  }),
  WatchSessionMessages: (sessionId) => ({ sessionId, stateFrames: true }),
  PushSessionEvent: (sessionId) => ({
    sessionId,
    eventType: "RAW",
    payload: '{"type":"RAW","event":1}',
  }),
  WatchSessionEvents: (sessionId) => ({ sessionId, stateFrames: true }),
  ListSessionMessages: (sessionId) => ({ sessionId }),
  ListSessionEvents: (sessionId) => ({ sessionId }),
  PushSessionEvents: (sessionId) => ({ frame: { case: "open", value: { sessionId } } }),
  // It waits for a moment, so that a session without messages is no error.
  ClaimTurn: (sessionId) => ({ sessionId, runStarted: '{"runId":"walked"}', wait: { nanos: 1 } }),
  CancelRun: (sessionId) => ({ sessionId, runId: "r" }),
  GetTranscript: (sessionId) => ({ sessionId }),
  SearchTexts: () => ({ query: "walked" }),
  ListRuns: (sessionId) => ({ sessionId }),
  GiveFeedback: (sessionId) => ({ sessionId, messageId: "walked", kind: "thumbs_up" }),
  IssueSessionToken: (sessionId) => ({ sessionId, role: "viewer" }),
  EraseSession: (id) => ({ id }),
  HoldSession: (id) => ({ id, release: true }),
  WatchEvents: () => ({}),
  WatchMessages: () => ({}),
};

export interface Route {
  readonly path: (id: string) => string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: (id: string) => unknown;
}

const session = (rest: string): Route => ({ path: (id) => `${API}/sessions/${id}${rest}` });
const connectBody = (threadId: string): object => ({ ...RUN, threadId });

/** The page's script: a file with a hash in its name. */
function assetPath(): string {
  const index = readFileSync(new URL("../../dist/web/index.html", import.meta.url), "utf8");
  return /src="([^"]+\.js)"/.exec(index)?.[1] ?? "/assets/none";
}

/** As in the table; the word after two spaces names the variant. */
export const ROUTES: Readonly<Record<string, Route>> = {
  "GET /": { path: () => "/" },
  "GET /sessions/:id": { path: () => "/sessions/any" },
  "GET /inbox": { path: () => "/inbox" },
  "GET /sessions/:id/compare": { path: () => "/sessions/any/compare" },
  "GET /assets/:file": { path: assetPath },
  "GET /openapi.json": { path: () => "/openapi.json" },
  "GET /api/ambient/v1/caller": { path: () => `${API}/caller` },
  "GET /api/ambient/v1/events": { path: () => `${API}/events` },
  "GET /api/ambient/v1/messages": { path: () => `${API}/messages` },
  "GET /api/ambient/v1/search": { path: () => `${API}/search?q=walked` },
  "GET /api/ambient/v1/sessions": { path: () => `${API}/sessions?size=1` },
  "POST /api/ambient/v1/sessions": {
    path: () => `${API}/sessions`,
    body: () => ({ name: "walked" }),
  },
  "GET /api/ambient/v1/sessions/:id": session(""),
  "POST /api/ambient/v1/sessions/:id/fork": {
    ...session("/fork"),
    body: () => ({ atMessageSeq: "1" }),
  },
  "PATCH /api/ambient/v1/sessions/:id": {
    ...session(""),
    body: () => ({ annotations: "walked" }),
  },
  "PATCH /api/ambient/v1/sessions/:id/status": {
    ...session("/status"),
    body: () => ({ phase: "Running" }),
  },
  "DELETE /api/ambient/v1/sessions/:id": session(""),
  "PUT /api/ambient/v1/sessions/:id/hold": {
    ...session("/hold"),
    body: () => ({ reason: "walked" }),
  },
  "DELETE /api/ambient/v1/sessions/:id/hold": session("/hold"),
  "GET /api/ambient/v1/sessions/:id/messages": session("/messages"),
  "GET /api/ambient/v1/sessions/:id/messages  stream": {
    ...session("/messages"),
    headers: { accept: "text/event-stream" },
  },
  "POST /api/ambient/v1/sessions/:id/messages  user": {
    ...session("/messages"),
    body: () => ({ payload: "hi" }),
  },
  "POST /api/ambient/v1/sessions/:id/messages  assistant": {
    ...session("/messages"),
    body: () => ({ payload: "hi", event_type: "assistant" }),
  },
  "POST /api/ambient/v1/sessions/:id/messages/:message/feedback": {
    ...session("/messages/walked/feedback"),
    body: () => ({ kind: "thumbs_up" }),
  },
  "POST /api/ambient/v1/sessions/:id/turns": {
    ...session("/turns"),
    body: () => ({ run_started: { runId: "walked" }, wait: "0.000000001s" }),
  },
  "POST /api/ambient/v1/sessions/:id/runs/:run/cancel": {
    ...session("/runs/r/cancel"),
    body: () => ({ reason: "walked" }),
  },
  "GET /api/ambient/v1/sessions/:id/events": session("/events"),
  "POST /api/ambient/v1/sessions/:id/events": {
    ...session("/events"),
    body: () => ({ type: "RAW", event: 1 }),
  },
  "GET /api/ambient/v1/sessions/:id/events/history": session("/events/history"),
  "GET /api/ambient/v1/sessions/:id/runs": session("/runs"),
  "GET /api/ambient/v1/sessions/:id/transcript": session("/transcript"),
  "GET /api/ambient/v1/sessions/:id/export": session("/export"),
  "GET /api/ambient/v1/sessions/:id/export  messages": session("/export?stream=messages"),
  "GET /api/ambient/v1/sessions/:id/history": session("/history?format=text"),
  "POST /agui/sessions/:id": { path: (id) => `/agui/sessions/${id}`, body: () => RUN },
  "POST /agui/sessions/:id  replay": {
    path: (id) => `/agui/sessions/${id}?replay=events`,
    body: () => RUN,
  },
  "POST /agui/sessions/:id  user": {
    path: (id) => `/agui/sessions/${id}?follow=true`,
    body: () => ({ ...RUN, messages: [{ id: randomUUID(), role: "user", content: "hi" }] }),
  },
  "GET /copilotkit/info": { path: () => "/copilotkit/info" },
  "POST /copilotkit/agent/:agent/connect": {
    path: () => "/copilotkit/agent/default/connect",
    body: connectBody,
  },
  "POST /copilotkit/agent/:agent/run": {
    path: () => "/copilotkit/agent/default/run",
    body: connectBody,
  },
  "POST /copilotkit/agent/:agent/stop/:thread": {
    path: (id) => `/copilotkit/agent/default/stop/${id}`,
    body: () => ({}),
  },
  "POST /copilotkit": {
    path: () => "/copilotkit",
    body: (id) => ({ method: "agent/connect", params: {}, body: connectBody(id) }),
  },
};

const WITHOUT_SESSION = new Set([
  "CreateSession",
  "ListSessions",
  "WatchSessions",
  "SearchTexts",
  "WatchEvents",
  "WatchMessages",
  "GET /",
  "GET /sessions/:id",
  "GET /inbox",
  "GET /sessions/:id/compare",
  "GET /assets/:file",
  "GET /openapi.json",
  "GET /api/ambient/v1/caller",
  "GET /api/ambient/v1/events",
  "GET /api/ambient/v1/messages",
  "GET /api/ambient/v1/search",
  "GET /api/ambient/v1/sessions",
  "POST /api/ambient/v1/sessions",
  "GET /copilotkit/info",
]);
const DESTROYS = /^(?:DeleteSession|EraseSession|DELETE .*:id)$/;
const WAITS_OR_MAKES =
  /^(?:Push|Watch|Claim)|^POST .*(?:messages|turns)(?: |$)|\/events(?: {2}stream)?$|messages {2}stream$|^POST \/agui|stop\/:thread$/;

export const EVERY_CALL: readonly Call[] = [
  ...Object.keys(REQUESTS).map((name) => callOf("rpc", name, / /)),
  ...Object.keys(ROUTES).map((name) => callOf("route", name, / {2}/)),
];

function callOf(of: "rpc" | "route", name: string, separator: RegExp): Call {
  const [entry = "", variant] = name.split(separator);
  const makes = WAITS_OR_MAKES.test(name) ? "OK" : "NOT_FOUND";
  return {
    name,
    of,
    entry,
    messageType: variant === "user" || variant === "assistant" ? variant : undefined,
    hasSession: !WITHOUT_SESSION.has(name),
    destroys: DESTROYS.test(name),
    unknown: /^POST \/copilotkit(?!.*stop)/.test(entry) ? "EMPTY" : makes,
  };
}

export interface Addresses {
  readonly grpcAddress: string;
  readonly httpAddress: string;
}

/** Calls of one service; `authorization` is sent unchanged, once for each value. */
export class EveryCall implements Disposable {
  readonly #addresses: Addresses;
  readonly #client: RpcClient;

  constructor(addresses: Addresses) {
    this.#addresses = addresses;
    this.#client = new RpcClient(addresses.grpcAddress);
  }

  async ask(call: Call, id: string, authorization: readonly string[]): Promise<Answer> {
    const answer = await this.#ask(call, id, authorization);
    return { outcome: answer.outcome, seen: answer.seen.replaceAll(id, "{id}") };
  }

  [Symbol.dispose](): void {
    this.#client.close();
  }

  #ask(call: Call, id: string, authorization: readonly string[]): Promise<Answer> {
    const [value, ...more] = authorization;
    if (call.of === "route") return this.#askRoute(call.name, id, authorization);
    if (more.length > 0) return this.#askRaw(call, id, authorization);
    return this.#askMethod(call, id, value === undefined ? {} : { authorization: value });
  }

  async #askMethod(
    { name, entry }: Call,
    id: string,
    metadata: Readonly<Record<string, string>>,
  ): Promise<Answer> {
    const method = methodOf(entry);
    const request = REQUESTS[name]?.(id) ?? {};
    try {
      await callMethod(this.#client, method, { request, metadata });
      return { outcome: "OK", seen: "" };
    } catch (error) {
      if (!(error instanceof RpcFailure)) throw error;
      return { outcome: error.code, seen: seenOf(error) };
    }
  }

  /** A raw call: no gRPC client sends a header twice. */
  async #askRaw({ name, entry }: Call, id: string, values: readonly string[]): Promise<Answer> {
    const method = methodOf(entry);
    const body = toBinary(method.input, create(method.input, REQUESTS[name]?.(id)));
    const options = { protocol: "http:", strictSingleValueFields: false } as const;
    const connection = connect(`http://${this.#addresses.grpcAddress}`, options);
    try {
      const path = `/${method.parent.typeName}/${method.name}`;
      const headers = [
        [":method", "POST", ":path", path, "te", "trailers", "content-type", "application/grpc"],
        ...values.map((value) => ["authorization", value]),
      ];
      const stream = connection.request(headers.flat(), { endStream: false });
      const status = new Promise<unknown>((resolve) => {
        for (const event of ["response", "trailers"]) {
          stream.on(event, ({ "grpc-status": code }: IncomingHttpHeaders) => {
            if (code !== undefined) resolve(code);
          });
        }
        stream.once("data", () => resolve("0"));
        stream.once("error", () => resolve("reset"));
      });
      stream.write(frame(body));
      if (method.methodKind !== "bidi_streaming") stream.end();
      const outcome = { "0": "OK", "16": "UNAUTHENTICATED" }[String(await status)];
      stream.close();
      return { outcome: outcome ?? String(await status), seen: "" };
    } finally {
      connection.destroy();
    }
  }

  #askRoute(name: string, id: string, values: readonly string[]): Promise<Answer> {
    const method = name.slice(0, name.indexOf(" "));
    const { path, headers = {}, body } = ROUTES[name] ?? { path: () => "/" };
    const [host = "", port] = this.#addresses.httpAddress.split(":");
    const sent = { ...headers, ...(body === undefined ? {} : JSON_HEADERS) };
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const request = httpRequest({
      host,
      port,
      method,
      path: path(id),
      headers: [
        "host",
        this.#addresses.httpAddress,
        ...Object.entries(sent).flat(),
        ...values.flatMap((value) => ["authorization", value]),
        ...(body === undefined ? [] : ["transfer-encoding", "chunked"]),
      ],
    });
    request.once("error", reject);
    request.once("response", (response) => {
      const { statusCode = 0, headers: given } = response;
      const isStream = given["content-type"]?.startsWith("text/event-stream") === true;
      const { date: _, "content-length": __, ...kept } = given;
      let text = "";
      const answer = (): void => {
        const outcome = outcomeOf(statusCode, isStream && !text.includes("data:"));
        resolve({ outcome, seen: JSON.stringify([statusCode, kept, withoutChance(text)]) });
      };
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
        // The stream may have no end: its first frame decides the outcome.
        if (!isStream || !/^(?:data:|: watch_state)/m.test(text)) return;
        request.destroy();
        resolve({ outcome: "OK", seen: "" });
      });
      response.once("end", answer);
      response.once("error", reject);
    });
    if (body !== undefined) request.write(JSON.stringify(body(id)));
    request.end();
    return promise;
  }
}

/** Resolves with the answer, or with the first message of a stream, which it then leaves. */
export async function callMethod(
  client: RpcClient,
  method: DescMethod,
  { request, metadata = {} }: { readonly request: Request } & Pick<CallOptions, "metadata">,
): Promise<void> {
  if (isUnary(method)) {
    await client.unary(method, request, { metadata });
  } else if (isServerStream(method)) {
    for await (const _ of client.serverStream(method, request, { metadata })) break;
  } else if (isBidiStream(method)) {
    const stream = client.bidiStream(method, { metadata });
    stream.send(request);
    for await (const _ of stream) break;
  }
}

/** The same for bytes that no encoder would make. */
export async function callBytes(
  client: RpcClient,
  method: DescMethod,
  bytes: Uint8Array,
): Promise<void> {
  if (isUnary(method)) return void (await client.unaryBytes(method, bytes));
  // A request that is a stream of one message is, on the wire, a request.
  const stream = client.bidiStream({ ...method, methodKind: "bidi_streaming" });
  stream.sendBytes(bytes);
  stream.end();
  for await (const _ of stream) break;
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function isServerStream(method: DescMethod): method is DescMethodServerStreaming {
  return method.methodKind === "server_streaming";
}

function isBidiStream(method: DescMethod): method is DescMethodBiDiStreaming {
  return method.methodKind === "bidi_streaming";
}

function methodOf(entry: string): DescMethod {
  const method = SessionService.methods.find(({ name }) => name === entry);
  if (method === undefined) throw new Error(`there is no RPC ${entry}`);
  return method;
}

/** The retry time is drawn for each stream. */
function withoutChance(text: string): string {
  return text.replace(/^retry: \d+\n\n/, "");
}

function seenOf(failure: RpcFailure): string {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- RpcFailure is made of one.
  const { metadata } = failure.cause as GrpcError;
  const trailers = Object.entries(metadata.getMap()).filter(([name]) => name !== "date");
  const texts = trailers.map(([name, value]) => [
    name,
    Buffer.isBuffer(value) ? value.toString("latin1") : value,
  ]);
  return JSON.stringify([failure.code, failure.message, texts]);
}

const OUTCOMES: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  409: "FAILED_PRECONDITION",
  501: "UNIMPLEMENTED",
};

function outcomeOf(status: number, isEmpty: boolean): string {
  if (status >= 200 && status < 300) return isEmpty ? "EMPTY" : "OK";
  return OUTCOMES[status] ?? `HTTP ${status}`;
}
