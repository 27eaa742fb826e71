/**
 * The endpoints of a runner, as a function from a web-standard Request to a Response, for any
 * server (Next, Hono, Bun, Deno) or server.ts. ROUTES alone knows the routes; one that the bridge
 * cannot serve is 404.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { isObject, type JsonObject, parseJson } from "@session-ledger/agui/json";
import { type RpcCode, RpcFailure, textOf } from "../../failure.ts";
import type { AgentEvent, RunCaller, PlatformBridge, RunInput } from "../bridge.ts";
import { wireCapabilities } from "../capabilities.ts";
import { eventStream } from "./events.ts";
import { BadRequest, refuseOther, runInputOf, threadIn, valueOf } from "./input.ts";
import type { AmbientName } from "../developer-events.ts";

/** A user's feedback on a message. */
export interface Feedback {
  readonly sessionId: string;
  readonly messageId: string;
  readonly kind: "thumbs_up" | "thumbs_down";
  readonly comment: string;
  /** Empty: unknown. */
  readonly traceId: string;
}

/** The parts of a runner that the endpoints use. */
export interface EndpointParts {
  readonly bridge: PlatformBridge;
  /** Begins a run. Its events have to be read to the end. Rejects with RunInProgress. */
  readonly begin: (
    input: RunInput,
    signal: AbortSignal,
    caller: RunCaller,
  ) => Promise<AsyncIterable<AgentEvent>>;
  /** Makes later runs use this model, and returns the earlier one. */
  readonly switchModel: (model: string) => string | undefined;
  /** Absent: without a ledger, `/feedback` does not exist. */
  readonly giveFeedback?: (feedback: Feedback) => Promise<unknown>;
  /** The only session that the runner serves; absent: any. */
  readonly sessionId?: string | undefined;
  /** All routes but `/health` need it as a bearer token; absent: none does. */
  readonly runnerToken?: string | undefined;
  /** The path in front of the routes, such as `/agent`. */
  readonly prefix?: string | undefined;
}

/** A handler of requests. It never rejects. */
export type Fetch = (request: Request) => Promise<Response>;

type Need = "fileSystem" | "mcp" | "ledger";

interface Route {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly needs?: Need;
  /** The name in the capabilities; absent: every runner has it. */
  readonly feature?: string;
  readonly isOpen?: boolean;
  readonly serve: (endpoints: Endpoints, request: Request) => unknown;
}

export const ROUTES: readonly Route[] = [
  { method: "POST", path: "/", serve: (own, request) => own.run(request) },
  { method: "POST", path: "/interrupt", serve: (own, request) => own.interrupt(request) },
  { method: "GET", path: "/health", isOpen: true, serve: () => ({ status: "healthy" }) },
  { method: "GET", path: "/capabilities", serve: (own) => own.capabilities() },
  {
    method: "POST",
    path: "/feedback",
    needs: "ledger",
    feature: "feedback",
    serve: (own, request) => own.feedback(request),
  },
  {
    method: "POST",
    path: "/model",
    feature: "model_switch",
    serve: (own, request) => own.model(request),
  },
  ...(
    [
      ["/repos/add", "addRepo", "ambient:repo_added"],
      ["/repos/remove", "removeRepo", "ambient:repo_removed"],
      ["/workflow", "changeWorkflow", "ambient:workflow_changed"],
    ] as const
  ).map(
    ([path, handler, name]): Route => ({
      method: "POST",
      path,
      needs: "fileSystem",
      feature: path === "/workflow" ? "workflow" : "repos",
      serve: (own, request) => own.change(request, handler, name),
    }),
  ),
  {
    method: "GET",
    path: "/repos/status",
    needs: "fileSystem",
    feature: "repos",
    serve: (own) => own.reposStatus(),
  },
  {
    method: "GET",
    path: "/mcp/status",
    needs: "mcp",
    feature: "mcp_diagnostics",
    serve: (own) => own.bridge.getMcpStatus(),
  },
];

export function endpointsOf(parts: EndpointParts): Fetch {
  const endpoints = new Endpoints(parts);
  return async (request) => {
    try {
      const answer = await endpoints.serve(request);
      return answer instanceof Response ? answer : Response.json(answer ?? {});
    } catch (error) {
      return refusal(error);
    }
  };
}

/** A bearer token does not have to be longer. */
const TEXT_CHARS_MAX = 8_192;
const MODEL_CHARS_MAX = 256;
/** Messages of a whole conversation. */
const BODY_BYTES_MAX = 16 * 1_024 * 1_024;

class Endpoints {
  readonly bridge: PlatformBridge;
  readonly #parts: EndpointParts;
  readonly #token: Buffer | undefined;
  readonly #prefix: string;
  #isSwitching = false;

  constructor(parts: EndpointParts) {
    const { bridge, runnerToken, prefix = "" } = parts;
    // An empty token would look like a protection.
    if (runnerToken === "") throw new TypeError("runnerToken must not be empty");
    this.bridge = bridge;
    this.#parts = parts;
    this.#token = runnerToken === undefined ? undefined : digestOf(runnerToken);
    this.#prefix = prefix.replace(/\/+$/, "");
  }

  serve(request: Request): unknown {
    const path = this.#pathOf(request);
    const ofPath = ROUTES.filter((route) => route.path === path);
    // Before 404, so that a caller without the token learns nothing.
    if (!ofPath.some(({ isOpen }) => isOpen)) this.#checkToken(request);
    const served = ofPath.filter(({ needs }) => this.#has(needs));
    if (served.length === 0) throw new BadRequest(404, `this runner has no route ${path}`);
    const route = served.find(({ method }) => method === request.method);
    if (route !== undefined) return route.serve(this, request);
    const allow = served.map(({ method }) => method).join(", ");
    return answerOf(405, { detail: `${path} takes ${allow}` }, { allow });
  }

  async run(request: Request): Promise<Response> {
    const { begin, sessionId } = this.#parts;
    const input = runInputOf(await bodyOf(request), sessionId);
    const own = new AbortController();
    const signal = AbortSignal.any([own.signal, request.signal]);
    const events = await begin(input, signal, callerOf(request.headers));
    return eventStream(events, (reason) => own.abort(reason));
  }

  async interrupt(request: Request): Promise<unknown> {
    const body = await bodyOf(request, {});
    const threadId = threadIn(body, this.#parts.sessionId);
    const runId = textIn(body, "runId", "") || undefined;
    return { interrupted: await this.bridge.interrupt(threadId, runId) };
  }

  capabilities(): unknown {
    const served = ROUTES.filter(({ needs }) => this.#has(needs));
    const features = new Set(served.flatMap(({ feature }) => feature ?? []));
    const { sessionId } = this.#parts;
    return {
      ...wireCapabilities(this.bridge.capabilities()),
      platform_features: [...features],
      ...(sessionId !== undefined && { session_id: sessionId }),
    };
  }

  async feedback(request: Request): Promise<unknown> {
    const body = await bodyOf(request);
    if (body["type"] !== "META") throw new BadRequest(400, "type must be META", "type");
    const kind = valueOf(body, "metaType", "");
    if (kind !== "thumbs_up" && kind !== "thumbs_down") {
      throw new BadRequest(400, "metaType must be thumbs_up or thumbs_down", "metaType");
    }
    const { payload } = body;
    if (!isObject(payload)) throw new BadRequest(400, "payload must be an object", "payload");
    const field = (name: string): string => textIn(payload, name, "payload.");
    const threadId = threadIn(body, this.#parts.sessionId);
    const named = field("sessionId");
    if (named !== "") {
      refuseOther(named, { sessionId: threadId, field: "payload.sessionId" });
    }
    const sessionId = threadId ?? named;
    const messageId = field("messageId");
    if (sessionId === "") throw new BadRequest(400, "threadId is required", "threadId");
    if (messageId === "") {
      throw new BadRequest(400, "payload.messageId is required", "payload.messageId");
    }
    const feedback = { sessionId, messageId, kind, comment: field("comment") } as const;
    await this.#parts.giveFeedback?.({ ...feedback, traceId: field("traceId") });
    return { message: "Feedback recorded", messageId, metaType: kind };
  }

  async model(request: Request): Promise<unknown> {
    const model = textIn(await bodyOf(request), "model", "").trim();
    if (model === "" || model.length > MODEL_CHARS_MAX) {
      const message = `model must be a name of 1 to ${MODEL_CHARS_MAX} characters`;
      throw new BadRequest(400, message, "model");
    }
    if (this.#isSwitching) throw new BadRequest(409, "another switch of the model is under way");
    if (this.bridge.isRunning()) {
      throw new BadRequest(422, "the model cannot be switched during a run");
    }
    this.#isSwitching = true;
    try {
      await this.bridge.switchModel?.(model);
      const previousModel = this.#parts.switchModel(model);
      this.bridge.markDirty();
      if (previousModel !== model) {
        const value = { previousModel: previousModel ?? null, newModel: model };
        this.bridge.notes.custom("ambient:model_switched", value);
      }
      return { message: "Model switched", model, previousModel: previousModel ?? null };
    } finally {
      this.#isSwitching = false;
    }
  }

  /** A handler of the bridge that changes the files of the agent. */
  async change(
    request: Request,
    handler: "addRepo" | "removeRepo" | "changeWorkflow",
    name: AmbientName,
  ): Promise<unknown> {
    const body = await bodyOf(request);
    if (this.bridge[handler] === undefined) throw notImplemented(handler);
    const answer = await this.bridge[handler](body, request.headers);
    // The same repository again changes nothing.
    if (isObject(answer) && answer["newly_cloned"] === false) return answer;
    this.bridge.markDirty();
    this.bridge.notes.custom(name, body);
    return answer;
  }

  reposStatus(): unknown {
    if (this.bridge.getReposStatus === undefined) throw notImplemented("getReposStatus");
    return this.bridge.getReposStatus();
  }

  #pathOf({ url }: Request): string {
    const { pathname } = new URL(url);
    const isInside = pathname === this.#prefix || pathname.startsWith(`${this.#prefix}/`);
    if (!isInside) return pathname;
    return pathname.slice(this.#prefix.length).replace(/(?<=.)\/$/, "") || "/";
  }

  #has(need: Need | undefined): boolean {
    if (need === undefined) return true;
    if (need === "ledger") return this.#parts.giveFeedback !== undefined;
    return this.bridge.capabilities()[need];
  }

  /** Digests have one length, so the time of the comparison reveals nothing about the token. */
  #checkToken({ headers }: Request): void {
    if (this.#token === undefined) return;
    const [, token = ""] = /^Bearer +(\S+) *$/i.exec(headers.get("authorization") ?? "") ?? [];
    if (token.length <= TEXT_CHARS_MAX && timingSafeEqual(digestOf(token), this.#token)) return;
    throw new BadRequest(401, "the runner's token is needed: authorization: Bearer …");
  }
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function notImplemented(handler: string): BadRequest {
  return new BadRequest(501, `the bridge has no ${handler}`);
}

/** `empty`: the body of a request without one. */
async function bodyOf(request: Request, empty?: JsonObject): Promise<JsonObject> {
  const text = await textOfBody(request);
  if (text.trim() === "" && empty !== undefined) return empty;
  const body = parseJson(text);
  if (isObject(body)) return body;
  throw new BadRequest(400, "the body must be a JSON object");
}

async function textOfBody({ body, headers }: Request): Promise<string> {
  const tooLarge = new BadRequest(413, `the body must have at most ${BODY_BYTES_MAX} bytes`);
  if (Number(headers.get("content-length") ?? 0) > BODY_BYTES_MAX) throw tooLarge;
  if (body === null) return "";
  const utf8 = new TextDecoder();
  let text = "";
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.byteLength;
    if (bytes > BODY_BYTES_MAX) throw tooLarge;
    text += utf8.decode(chunk, { stream: true });
  }
  return text + utf8.decode();
}

function textIn(object: JsonObject, name: string, path: string): string {
  const value = valueOf(object, name, path) ?? "";
  if (typeof value === "string") return value;
  throw new BadRequest(400, `${path}${name} must be a text`, `${path}${name}`);
}

const CALLER_CHARS_MAX = 256;

/** The headers of the platform's proxy. A name becomes part of prompts, so it is one short line. */
function callerOf(headers: Headers): RunCaller {
  const line = (name: string): string =>
    (headers.get(name) ?? "")
      .replaceAll(/\p{Cc}/gu, "")
      .trim()
      .slice(0, CALLER_CHARS_MAX);
  const userId = line("x-current-user-id");
  const userName = line("x-current-user-name");
  const token = headers.get("x-caller-token") ?? "";
  return {
    ...(userId !== "" && { userId }),
    ...(userName !== "" && { userName }),
    ...(token !== "" && { token }),
  };
}

/** `detail` is what upstream's callers show. */
function refusal(error: unknown): Response {
  const detail = textOf(error);
  const status = statusOf(error);
  const { field } = error instanceof BadRequest ? error : {};
  const headers: Record<string, string> = status === 401 ? { "www-authenticate": "Bearer" } : {};
  return answerOf(status, { detail, ...(field !== undefined && { field }) }, headers);
}

function answerOf(status: number, body: JsonObject, headers: Record<string, string>): Response {
  return Response.json(body, { status, headers });
}

/** Of a call to the ledger. Other codes are faults between the runner and the service. */
const STATUS: Partial<Record<RpcCode, number>> = {
  INVALID_ARGUMENT: 400,
  NOT_FOUND: 404,
  FAILED_PRECONDITION: 409,
  ABORTED: 409,
  RESOURCE_EXHAUSTED: 429,
  UNAVAILABLE: 503,
  DEADLINE_EXCEEDED: 503,
};

function statusOf(error: unknown): number {
  if (error instanceof RpcFailure) return STATUS[error.code] ?? 502;
  const status = error instanceof Error && "status" in error ? Number(error.status) : 500;
  return Number.isInteger(status) && status >= 400 && status <= 599 ? status : 500;
}
