/**
 * fastify for this service: the steps of every request before its route, and the form of errors.
 * Route files are plugins of this `App`.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import {
  fastify,
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerFactory,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
  type RawServerDefault,
} from "fastify";
import type { ZodTypeProvider } from "fastify-type-provider-zod";
import { z } from "zod";
import type { ErrorReason, ServiceError } from "@session-ledger/base/errors";
import { Budget, serverBusy, UNREAD_LIMIT_MS } from "../../base/budget.ts";
import type { Admission } from "./admission.ts";
import { SERVED_REQUEST, ServedRequest, callContextOf } from "./call-context.ts";
import { Cors } from "./cors.ts";
import {
  checkContentCoding,
  checkHost,
  checkQuery,
  RouteTable,
  parseQuery,
} from "./request-checks.ts";
import { parse, parseValue, receive } from "./json-body.ts";
import { limitUnread, SAFE } from "./listener.ts";
import type { OpenRequests } from "./open-requests.ts";
import {
  CLIENT_CLOSED_REQUEST,
  PROBLEM_TYPE,
  problemHeaders,
  problemOf,
  refusalOf,
  refusalOfIssues,
  statusOf,
} from "./problem.ts";
import { type RequestEnd, type RequestRecords, UNKNOWN_ROUTE } from "./request-records.ts";

/** The type that route files get: fastify with Zod schemas. */
export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

export interface AppParts {
  readonly openRequests: OpenRequests;
  readonly records: RequestRecords;
  readonly admission: Admission;
  /** Only this machine can reach the service: another host name is an attack by DNS rebinding. */
  readonly isOnLoopback: boolean;
  readonly serverFactory: FastifyServerFactory;
  /** Answers bytes that are no request, and late requests; when absent, the framework does. */
  readonly clientError?: (error: Error, socket: unknown) => void;
  /** When absent, the server makes its own. */
  readonly memory?: Budget | undefined;
  /** Answers a browser that is sent to an unknown address; when absent, a problem does. */
  readonly sendUnknownPage?: ((reply: FastifyReply) => Promise<FastifyReply>) | undefined;
}

const MEMORY_BYTES_MAX = 256 * 1024 * 1024;

/**
 * Makes fastify check requests with Zod; otherwise it would load ajv and a serializer. Its types
 * name ajv, so this is an object.
 */
export const CHECKED_BY_ZOD: object = {
  schemaController: {
    compilersFactory: {
      buildValidator: () => checkOf,
      buildSerializer: () => () => JSON.stringify,
    },
  },
};

function checkOf({ schema }: { readonly schema: z.ZodType }) {
  return (data: unknown): { readonly value: unknown } | { readonly error: ServiceError } => {
    const { success, data: value, error } = schema.safeParse(data);
    const fields = schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];
    return success ? { value } : { error: refusalOfIssues(error.issues, fields) };
  };
}

/** The request line bounds a path parameter; the handlers report a session id that is too long. */
const PARAMETER_CHARS_MAX = 16 * 1024;

export interface AppOptions {
  readonly requestBytesMax: number;
  /** Web origins whose pages may call; none when absent. */
  readonly origins?: readonly string[];
}

export function createApp(parts: AppParts, options: AppOptions): App {
  const cors = new Cors(options.origins ?? []);
  // A payload that is JSON has at most twice its size as a text in JSON.
  const jsonBytesMax = 2 * options.requestBytesMax;
  const app = fastify({
    serverFactory: parts.serverFactory,
    bodyLimit: jsonBytesMax,
    trustProxy: false,
    ...CHECKED_BY_ZOD,
    return503OnClosing: false, // A hook answers 503 instead, as a problem.
    ...(parts.clientError && { clientErrorHandler: parts.clientError }),
    routerOptions: {
      caseSensitive: true,
      ignoreTrailingSlash: false,
      ignoreDuplicateSlashes: false,
      maxParamLength: PARAMETER_CHARS_MAX,
      querystringParser: parseQuery,
    },
    frameworkErrors: (cause, request, reply) => {
      const error = refusalOf(cause);
      const startedMs = parts.records.startedMs();
      reply.raw.once("close", () => {
        record(parts.records, reply, { startedMs, sessionId: undefined, error });
      });
      void reply.headers(SAFE);
      cors.answer(request.headers, reply);
      sendProblem(reply, error);
    },
  }).withTypeProvider<ZodTypeProvider>();
  // A page of another origin can post a form or plain text without permission.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    "application/json",
    async (request: FastifyRequest, payload: IncomingMessage) =>
      parse(request, await receive(request, payload, { bytesMax: jsonBytesMax }), parseValue),
  );
  app.decorateRequest(SERVED_REQUEST);
  serveAll(app, { ...parts, cors });
  return app;
}

function serveAll(
  app: App,
  { openRequests, records, admission, cors, ...parts }: AppParts & { readonly cors: Cors },
): void {
  const routes = new RouteTable();
  const { isOnLoopback, memory = new Budget({ max: MEMORY_BYTES_MAX }) } = parts;
  app.addHook("onRoute", ({ method, url }) => {
    routes.add(method, url);
    for (const one of [method].flat()) admission.expect(one, url);
  });
  app.addHook("onRequest", (request, reply, done) => {
    const startedMs = records.startedMs();
    const served = new ServedRequest(() => openRequests.stopping);
    served.span = records.span(request, request.is404 ? undefined : request.routeOptions.url);
    request.setDecorator(SERVED_REQUEST, served);
    openRequests.enter(served);
    reply.raw.once("close", () => {
      served.onClose(!reply.raw.writableFinished);
      openRequests.leave(served);
      const sessionId = sessionIdOf(request);
      record(records, reply, { startedMs, sessionId, error: served.refusal, served });
    });
    void reply.headers(SAFE);
    cors.answer(request.headers, reply);
    const refusal = openRequests.stopping ?? checkHost(request.raw, { isOnLoopback });
    if (refusal === undefined && request.is404) {
      const methods = routes.methodsOf(request.url);
      if (methods.size > 0 && cors.isPreflight(request.method, request.headers)) {
        // Before the token is read: a browser sends none with this request.
        Cors.permit(reply, methods);
        return void reply.code(204).send();
      }
    }
    done(refusal);
  });
  app.addHook("onRequest", unknownAddress(routes, parts.sendUnknownPage));
  app.addHook("onRequest", async (request, reply) => {
    callContextOf(request).admit(await admission.admit(request), memory, reply);
  });
  app.addHook("onRequest", (request, _reply, done) => {
    done(checkQuery(request.url) ?? checkContentCoding(request.headers["content-encoding"]));
  });
  app.addHook("onSend", (request, reply, payload, done) => {
    const served = callContextOf(request);
    // The answer takes over the memory of the request.
    served.memory?.resize("request", 0);
    const hasRoom = served.memory?.resize("answer", lengthOf(payload)) ?? true;
    limitUnread(reply.raw, UNREAD_LIMIT_MS);
    // The connection of an upload is closed later: its close could overtake the answer.
    if (openRequests.stopping !== undefined && !served.isStream)
      void reply.header("connection", "close");
    if (hasRoom) return done(null, payload);
    const error = serverBusy();
    served.refusal = error;
    void reply.code(statusOf(error)).headers(problemHeaders(error)).type(PROBLEM_TYPE);
    void reply.removeHeader("content-length");
    done(null, Buffer.from(JSON.stringify(problemOf(error))));
  });
  app.setErrorHandler((cause, request, reply) => {
    const error = refusalOf(cause);
    callContextOf(request).refusal = error;
    // fastify would close the connection of a body that it does not read, and a client that still
    // sends would get a reset and no reason. Node reads the rest and drops it.
    void reply.removeHeader("connection");
    if (LEFT_BODY.has(error.reason) && !request.raw.complete) leaveBody(request.raw, reply.raw);
    sendProblem(reply, error);
  });
}

/** The reasons for which the rest of the body is not read; the connection is closed … */
const LEFT_BODY: ReadonlySet<ErrorReason> = new Set([
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "SERVER_BUSY",
]);
/** … after this time, in which the caller can read the answer. */
const LEFT_BODY_LIMIT_MS = 1_000;

function leaveBody(request: IncomingMessage, response: ServerResponse): void {
  const end = (): void => void (request.complete || request.socket.destroy());
  response.once("finish", () => setTimeout(end, LEFT_BODY_LIMIT_MS).unref());
}

function lengthOf(payload: unknown): number {
  return typeof payload === "string" || Buffer.isBuffer(payload) ? payload.length : 0;
}

/** Sent as bytes: to text fastify would add a charset, which JSON does not have. */
function sendProblem(reply: FastifyReply, error: ServiceError): void {
  const body = Buffer.from(JSON.stringify(problemOf(error)));
  void reply.code(statusOf(error)).headers(problemHeaders(error)).type(PROBLEM_TYPE).send(body);
}

function record(
  records: RequestRecords,
  { request, raw }: FastifyReply,
  {
    served,
    ...end
  }: Pick<RequestEnd, "startedMs" | "sessionId" | "error"> & {
    readonly served?: ServedRequest;
  },
): void {
  records.recordEnd({
    ...end,
    method: request.method,
    route: (request.is404 ? undefined : request.routeOptions.url) ?? UNKNOWN_ROUTE,
    status: raw.headersSent ? raw.statusCode : CLIENT_CLOSED_REQUEST,
    isStream: served?.isStream ?? false,
    span: served?.span,
    wasLeft: !raw.writableFinished,
  });
}

/** A browser that follows a link gets the page, and a program a problem. */
function unknownAddress(routes: RouteTable, sendPage: AppParts["sendUnknownPage"]) {
  return async (
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply | undefined> => {
    if (!request.is404) return undefined;
    const { method, url, headers } = request;
    const refusal = routes.refusalOf(method, url);
    const isForPerson = method === "GET" && headers.accept?.includes("text/html") === true;
    if (sendPage === undefined || !isForPerson || refusal.status !== 404) throw refusal;
    return sendPage(reply);
  };
}

/** From the path, or from a request of CopilotKit's client: the thread, or in the envelope. */
function sessionIdOf({ params, body }: FastifyRequest): string | undefined {
  const input = memberOf(body, "body") ?? body;
  const named = [memberOf(params, "id"), memberOf(params, "thread"), memberOf(input, "threadId")];
  return named.find((id) => typeof id === "string");
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
}
