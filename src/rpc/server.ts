/**
 * The gRPC server: our service, health and reflection. One interceptor handles our calls in place of
 * grpc-js.
 *
 *   new ── start ──► serving ── stop ──► health is NOT_SERVING
 *                                          │ streams end with UNAVAILABLE, new calls get it
 *                                          │ connections get GOAWAY; calls in progress finish
 *                                          ├─ all done ───────────────────────────► stopped
 *                                          └─ stopLimitMs passed, connections cut ──► stopped
 */
import type { Socket } from "node:net";
import {
  logVerbosity,
  Server,
  ServerCredentials,
  ServerInterceptingCall,
  type ServerInterceptor,
  setLogVerbosity,
} from "@grpc/grpc-js";
import {
  file_ambient_v1_sessions,
  SessionService,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { file_google_rpc_error_details } from "@session-ledger/proto/google/rpc/error_details_pb";
import type { Authenticator } from "../auth/authenticator.ts";
import { Budget } from "../base/budget.ts";
import { isDoneWithin } from "@session-ledger/base/timers";
import type { Unit } from "../base/unit.ts";
import type { ListenerParts } from "../transport/listen.ts";
import { type AnswerDeps, answersOf, type SessionHandlers } from "./answers.ts";
import { definitionOf } from "./codec.ts";
import type { LoggedCalls } from "../observability/call-records.ts";
import { Decompressor } from "./decompress.ts";
import { Connections, limitHttp2 } from "./connections.ts";
import { addReflection, Health, healthAndReflectionCalls } from "./health-and-reflection.ts";
import { GrpcListener } from "./listener.ts";
import { type OpenCall, OpenCalls } from "./open-calls.ts";
import { type CallParts, TICK_MS } from "./serve.ts";
import { statusOf } from "./status.ts";

/** The default limit of one request, compressed or not. */
export const REQUEST_BYTES_MAX = 4 * 1024 * 1024;
/** Handlers get this long to notice that their calls were cut. */
const CUT_HANDLERS_LIMIT_MS = 1_000;

const KEEPALIVE = {
  /** The interval of pings on quiet connections … */
  intervalMs: 30_000,
  /** … and the limit of their answer; after it the connection is closed and its watches end. */
  timeoutMs: 10_000,
};

export interface RpcServerOptions {
  /** `host:port`; port 0 takes a free one. */
  readonly address: string;
  /** Other processes of this service listen on the same port. */
  readonly isShared?: boolean;
  readonly reflection: boolean;
  readonly logCalls: LoggedCalls;
  /** A larger request is RESOURCE_EXHAUSTED and not read. */
  readonly requestBytesMax?: number;
  /** The time that calls in progress may take to finish when the server stops. */
  readonly stopLimitMs: number;
  readonly keepalive?: typeof KEEPALIVE;
  readonly limits?: Partial<typeof LIMITS>;
  /** The interval of the checks for late calls and ended tokens. */
  readonly tickMs?: number;
}

/** The limits of callers below the handlers. */
const LIMITS = {
  connectionsMax: 4_096,
  /** Calls of one connection at a time, watches included; the caller's library queues others. */
  callsPerConnectionMax: 1_000,
  /** Bytes held for all callers together: requests, unread answers, rows for them. */
  receivedBytesMax: 256 * 1024 * 1024,
};

export interface RpcServerDeps
  extends Omit<AnswerDeps, keyof CallParts>,
    Pick<ListenerParts, "tls"> {
  readonly handlers: SessionHandlers;
  readonly authenticator: Pick<Authenticator, "asks" | "authenticate" | "refusalOf">;
  /** Memory for callers, shared by both servers; when absent, this server makes its own. */
  readonly memory?: Budget | undefined;
}

export class GrpcServer implements Unit {
  readonly #log: AnswerDeps["log"];
  readonly #callers: RpcServerDeps["authenticator"];
  readonly #options: RpcServerOptions;
  readonly #openCalls = new OpenCalls();
  readonly #memory: Budget;
  readonly #metrics: AnswerDeps["metrics"];
  readonly #connections: Connections;
  readonly #beginHealthOrReflection: ReturnType<typeof healthAndReflectionCalls>;
  readonly #health = new Health([SessionService.typeName]);
  readonly #server: Server;
  readonly #listener: GrpcListener;
  /** `host:port`, after the start with the port that was taken. */
  address: string;
  #started: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #ticking: NodeJS.Timeout | undefined;

  constructor(
    { authenticator: callers, tls, memory, ...deps }: RpcServerDeps,
    options: RpcServerOptions,
  ) {
    const { requestBytesMax = REQUEST_BYTES_MAX } = options;
    const limits = { ...LIMITS, ...options.limits };
    this.#log = deps.log;
    this.#metrics = deps.metrics;
    this.#callers = callers;
    this.#options = options;
    this.address = options.address;
    this.#memory = memory ?? new Budget({ max: limits.receivedBytesMax });
    this.#connections = new Connections(deps.metrics);
    const callParts: CallParts = {
      openCalls: this.#openCalls,
      callers,
      budget: this.#memory,
      decompressor: new Decompressor({ bytesMax: requestBytesMax }),
      requestBytesMax,
      cut: (stream) => this.#connections.cut(stream),
    };
    this.#beginHealthOrReflection = healthAndReflectionCalls(callParts, {
      callsMax: limits.connectionsMax,
    });
    const answerDeps = { ...deps, ...callParts };
    const answers = answersOf(answerDeps, deps.handlers, options);
    this.#server = newServer(options, limits, this.#interceptor(answers));
    limitHttp2(this.#server);
    const injector = this.#server.createConnectionInjector(ServerCredentials.createInsecure());
    this.#connections.watch(this.#server);
    const onConnection = (socket: Socket): void => injector.injectConnection(socket);
    this.#listener = new GrpcListener({ ...deps, tls, onConnection }, limits);
    this.#server.addService(definitionOf(SessionService), {});
    this.#health.addTo(this.#server);
    if (options.reflection) {
      addReflection(this.#server, [file_ambient_v1_sessions, file_google_rpc_error_details]);
    }
  }

  /** The answer of health; true after `start`, and false for good once `stop` was called. */
  setServing(isServing: boolean): void {
    if (this.#stopped === undefined) this.#health.set(isServing);
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
    this.#ticking = setInterval(() => this.#tick(), this.#options.tickMs ?? TICK_MS);
    const { address, isShared = false } = this.#options;
    this.address = await this.#listener.listen({ address, isShared });
    this.setServing(true);
  }

  async #end(): Promise<void> {
    this.#health.set(false);
    await this.#started?.catch(() => undefined);
    clearInterval(this.#ticking);
    const handlersDone = this.#openCalls.close();
    const connectionsClosed = this.#listener.close();
    // The listener knows better when the connections are gone.
    this.#server.tryShutdown(() => undefined);
    const done = Promise.all([handlersDone, connectionsClosed]);
    if (await isDoneWithin(this.#options.stopLimitMs, done)) return;
    this.#log.warn({ handlers: this.#openCalls.handlersRunning }, "calls cut at the stop limit");
    this.#listener.cut();
    if (await isDoneWithin(CUT_HANDLERS_LIMIT_MS, done)) return;
    this.#log.error({ handlers: this.#openCalls.handlersRunning }, "handlers still run after stop");
  }

  #tick(): void {
    this.#metrics.receivedBytes.set(this.#memory.used);
    this.#openCalls.tick((principal) => this.#callers.refusalOf(principal));
  }

  #interceptor(answers: ReturnType<typeof answersOf>): ServerInterceptor {
    return (method, wire) => {
      const arrived = this.#connections.takeArrived();
      if (arrived.isTooLarge) {
        const reset = (): void => this.#connections.resetTooLarge(arrived.stream);
        return new ServerInterceptingCall(wire, { start: reset });
      }
      const answer = answers.get(method.path);
      if (answer !== undefined) {
        return new ServerInterceptingCall(wire, { start: () => answer(wire, arrived) });
      }
      const refusal = this.#beginHealthOrReflection(arrived.stream);
      if (refusal !== undefined) {
        const refuse = (): void => wire.sendStatus(statusOf(refusal));
        return new ServerInterceptingCall(wire, { start: refuse });
      }
      if (!method.responseStream) return new ServerInterceptingCall(wire);
      // Health's watches and reflection do not end, and would delay a stop up to its limit.
      const call: OpenCall = { isStream: true, fail: (error) => wire.sendStatus(statusOf(error)) };
      this.#openCalls.add(call);
      const onCancel = (): void => this.#openCalls.remove(call);
      return new ServerInterceptingCall(wire, { start: (next) => next({ onCancel }) });
    };
  }
}

function newServer(
  options: RpcServerOptions,
  { callsPerConnectionMax }: typeof LIMITS,
  intercept: ServerInterceptor,
): Server {
  const { keepalive = KEEPALIVE, requestBytesMax = REQUEST_BYTES_MAX } = options;
  // grpc-js writes only lines that a caller can cause, with the caller's headers in them.
  setLogVerbosity(logVerbosity.NONE);
  return new Server({
    "grpc.max_receive_message_length": requestBytesMax,
    "grpc.max_concurrent_streams": callsPerConnectionMax,
    "grpc.keepalive_time_ms": keepalive.intervalMs,
    "grpc.keepalive_timeout_ms": keepalive.timeoutMs,
    // Channelz counts every call and message for a service that is not offered.
    "grpc.enable_channelz": 0,
    interceptors: [intercept],
  });
}
