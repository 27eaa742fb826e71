/**
 * The public HTTP port: REST, SSE, AG-UI and CopilotKit over the handlers that gRPC uses too.
 *
 *   new ── start ──► serving ── stop ──► no new connection; streams end, new requests are 503
 *                                          │ requests under way finish
 *                                          ├─ all answered ───────────────────────────► stopped
 *                                          └─ stopLimitMs passed, connections cut ──► stopped
 */
import { z } from "zod";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Authorizer } from "../auth/authorizer.ts";
import type { Principal } from "../auth/principal.ts";
import { isDoneWithin } from "@session-ledger/base/timers";
import type { Unit } from "../base/unit.ts";
import type { LoggedCalls, RecordDeps } from "../observability/call-records.ts";
import type { Metrics } from "../observability/metrics.ts";
import { close, type ListenerParts } from "../transport/listen.ts";
import type { Budget } from "../base/budget.ts";
import { createAdmission } from "./plumbing/admission.ts";
import { AguiInputs } from "./agui-input.ts";
import { aguiRoutes } from "./agui-routes.ts";
import { NO_QUERY } from "./parameters.ts";
import { type App, createApp } from "./plumbing/app.ts";
import { answer, DENIALS, sendJson } from "./answers.ts";
import { callerRoutes, type ModelPrice } from "./caller-routes.ts";
import { runRoutes, transcriptRoutes } from "./conversation-routes.ts";
import { copilotKitRoutes } from "./copilotkit-routes.ts";
import { exportRoutes } from "./export-routes.ts";
import { eventPushRoutes } from "./event-push-routes.ts";
import { eventRoutes } from "./event-routes.ts";
import { feedRoutes } from "./feed-routes.ts";
import { isLoopbackName } from "./plumbing/request-checks.ts";
import {
  HTTP_LIMITS,
  type HttpLimits,
  HttpListener,
  TOKEN_CHECK_INTERVAL_MS,
} from "./plumbing/listener.ts";
import { inspectorRoutes, sendUnknownPage } from "./inspector.ts";
import { feedbackRoutes, messageRoutes } from "./message-routes.ts";
import type { DescribedRoute } from "./openapi.ts";
import { OpenRequests } from "./plumbing/open-requests.ts";
import { RequestRecords } from "./plumbing/request-records.ts";
import { searchRoutes } from "./search-routes.ts";
import { forkRoutes, holdRoutes, sessionRoutes } from "./session-routes.ts";
import { UnsentFrames } from "./sse.ts";
import { turnRoutes } from "./turn-routes.ts";
import type { ServedMethods, ServedReads } from "../handlers/authorised.ts";

export interface HttpParts extends ServedReads, ListenerParts, RecordDeps {
  readonly handlers: ServedMethods;
  readonly authenticator: Pick<Authenticator, "asks" | "authenticate" | "refusalOf">;
  readonly authorizer: Authorizer;
  /** Memory for callers, shared by both servers; when absent, this server makes its own. */
  readonly memory?: Budget | undefined;
  readonly metrics: Metrics;
}

export interface HttpOptions {
  /** `host:port`; port 0 takes a free one. */
  readonly address: string;
  /** Other processes of this service listen on the same port. */
  readonly isShared?: boolean;
  readonly requestBytesMax: number;
  readonly connectionsMax: number;
  readonly heartbeatMs: number;
  readonly logRequests: LoggedCalls;
  /** The time that requests in progress may take to finish when the server stops. */
  readonly stopLimitMs: number;
  /** Web origins whose pages may call; none when absent. */
  readonly origins?: readonly string[];
  /** What a million tokens of a model cost, in USD; none when absent. */
  readonly modelPrices?: Readonly<Record<string, ModelPrice>>;
  /** Serves the inspector's page. */
  readonly inspector: boolean;
  readonly limits?: HttpLimits;
}

const API_PREFIX = "/api/ambient/v1";

/** Sent answers may still be on their way to the kernel. */
const LAST_BYTES_LIMIT_MS = 200;

export class FastifyServer implements Unit {
  readonly #parts: HttpParts;
  readonly #options: HttpOptions;
  readonly #openRequests = new OpenRequests();
  readonly #app: App;
  readonly #listener: HttpListener;
  /** `host:port`, after the start with the port that was taken. */
  address: string;
  #started: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #tokenCheck: NodeJS.Timeout | undefined;

  constructor(parts: HttpParts, options: HttpOptions) {
    this.#parts = parts;
    this.#options = options;
    this.address = options.address;
    const records = new RequestRecords(parts, options);
    const { limits = HTTP_LIMITS, connectionsMax } = options;
    this.#listener = new HttpListener(
      { ...parts, onRefused: (error) => records.recordEarly(error) },
      { limits, connectionsMax },
    );
    this.#app = createApp(
      {
        openRequests: this.#openRequests,
        records,
        admission: createAdmission(parts),
        isOnLoopback: isLoopbackName(hostOf(options.address)),
        serverFactory: (handle) => this.#listener.serving(handle),
        clientError: (error, socket) => this.#listener.refuse(error, socket),
        memory: parts.memory,
        sendUnknownPage: options.inspector ? sendUnknownPage : undefined,
      },
      options,
    );
    serveRoutes(this.#app, parts, options);
  }

  start(): Promise<void> {
    this.#started ??= this.#listen();
    return this.#started;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #listen(): Promise<void> {
    await this.#app.ready();
    const { authenticator } = this.#parts;
    if (authenticator.asks) {
      const refusalOf = (principal: Principal) => authenticator.refusalOf(principal);
      const check = (): void => this.#openRequests.endRefused(refusalOf);
      this.#tokenCheck = setInterval(check, TOKEN_CHECK_INTERVAL_MS);
    }
    const { isShared = false } = this.#options;
    this.address = await this.#listener.listen({ address: this.address, isShared });
  }

  async #end(): Promise<void> {
    await this.#started?.catch(() => undefined);
    clearInterval(this.#tokenCheck);
    const { server } = this.#listener;
    // Takes no new connection and closes idle ones; resolves when all are closed.
    const connectionsClosed = close(server);
    const answered = this.#openRequests.close();
    if (!(await isDoneWithin(this.#options.stopLimitMs, answered))) {
      const requests = this.#openRequests.count;
      this.#parts.log.warn({ requests }, "requests cut at the stop limit");
    }
    server.closeIdleConnections();
    // The remaining connections have no answer in progress, or one that was cut off above.
    await isDoneWithin(LAST_BYTES_LIMIT_MS, connectionsClosed);
    server.closeAllConnections();
    await Promise.all([connectionsClosed, answered]);
    await this.#app.close();
  }
}

/** Every route, and the document that describes them. */
export function serveRoutes(app: App, parts: HttpParts, options: HttpOptions): void {
  const routes = { ...parts, heartbeatMs: options.heartbeatMs, unsent: new UnsentFrames() };
  const openApi = openApiRoutes(app);
  if (options.inspector) void app.register(inspectorRoutes);
  void app.register((root: App, _options, done) => {
    const inputs = new AguiInputs();
    inputs.serve(root);
    openApi(root);
    aguiRoutes(root, { ...routes, inputs });
    copilotKitRoutes(root, { ...routes, inputs });
    done();
  });
  void app.register(
    (api: App, _options, done) => {
      callerRoutes(api, options);
      sessionRoutes(api, routes);
      holdRoutes(api, routes);
      forkRoutes(api, routes);
      runRoutes(api, routes);
      transcriptRoutes(api, routes);
      messageRoutes(api, routes);
      turnRoutes(api, routes);
      feedbackRoutes(api, routes);
      eventRoutes(api, routes);
      eventPushRoutes(api, routes, options);
      exportRoutes(api, routes);
      feedRoutes(api, routes);
      searchRoutes(api, routes);
      done();
    },
    { prefix: API_PREFIX },
  );
}

/** Call this before the routes: it listens to their registration. */
function openApiRoutes(app: App): (app: App) => void {
  const routes: DescribedRoute[] = [];
  let document: string | undefined;
  app.addHook("onRoute", ({ method, url, schema = {} }) => {
    for (const one of [method].flat())
      if (one !== "HEAD") routes.push({ method: one, url, schema });
  });
  return (root) => {
    root.get("/openapi.json", { schema: DOCUMENT }, async (_request, reply) => {
      if (document === undefined) {
        // Loaded here: most services are never asked for the document.
        const { documentOf } = await import("./openapi.ts");
        document = await documentOf(routes);
      }
      return sendJson(reply, document);
    });
  };
}

const DOCUMENT = {
  operationId: "getOpenApi",
  summary: "This document",
  tags: ["description"],
  querystring: NO_QUERY,
  response: { 200: answer("OpenAPI 3.1.", z.looseObject({ openapi: z.string() })), ...DENIALS },
};

function hostOf(address: string): string {
  return address.slice(0, address.lastIndexOf(":"));
}
