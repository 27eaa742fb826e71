/**
 * The gRPC server: our service by the adapters beside this file, health and reflection as their
 * packages have them. Every call passes one interceptor, which takes ours over before grpc-js would.
 *
 *   new ── start ──► serving ── stop ──► health says NOT_SERVING
 *                                          │ streams end with UNAVAILABLE, new calls get it
 *                                          │ connections are told to go; calls under way finish
 *                                          ├─ all done ───────────────────────────► stopped
 *                                          └─ stopLimitMs passed, connections cut ──► stopped
 */
import {
  Server,
  ServerCredentials,
  ServerInterceptingCall,
  type ServerInterceptor,
} from "@grpc/grpc-js";
import { file_ambient_v1_sessions, SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { file_google_rpc_error_details } from "../../gen/google/rpc/error_details_pb.ts";
import type { Unit } from "../base/lifecycle.ts";
import { type AnswerDeps, answersOf, type SessionHandlers } from "./answers.ts";
import type { LoggedCalls } from "./call-records.ts";
import { definitionOf } from "./definition.ts";
import { Health } from "./health.ts";
import { Listener } from "./listener.ts";
import { OpenCalls } from "./open-calls.ts";
import { addReflection } from "./reflection.ts";
import { statusOf } from "./status.ts";

/** One request, compressed or not, unless configured; the largest payload, 1 MiB, and its frame fit. */
export const REQUEST_BYTES_MAX = 4 * 1024 * 1024;
/** A connection's calls at a time, watches included; the caller's library queues what is above. */
const CALLS_PER_CONNECTION_MAX = 1_000;
/** Handlers get this long to notice that their calls were cut. */
const CUT_HANDLERS_LIMIT_MS = 1_000;

export interface Keepalive {
  /** Quiet connections are pinged this often … */
  readonly intervalMs: number;
  /** … and closed when the answer takes longer; their watches end then. */
  readonly timeoutMs: number;
}

const KEEPALIVE: Keepalive = { intervalMs: 30_000, timeoutMs: 10_000 };

export interface RpcServerOptions {
  /** `host:port`; port 0 takes a free one. */
  readonly address: string;
  readonly reflection: boolean;
  readonly logCalls: LoggedCalls;
  /** Above it a request is RESOURCE_EXHAUSTED and not read. */
  readonly requestBytesMax?: number;
  /** How long calls under way may take to finish when the server stops. */
  readonly stopLimitMs: number;
  readonly keepalive?: Keepalive;
}

export interface RpcServer extends Unit {
  /** `host:port`, once started with the port that was taken. */
  readonly address: string;
  /** What health answers; true after `start`, and false for good once `stop` was called. */
  setServing(isServing: boolean): void;
}

export function createRpcServer(
  deps: Omit<AnswerDeps, "openCalls"> & { readonly handlers: SessionHandlers },
  options: RpcServerOptions,
): RpcServer {
  return new GrpcServer(deps, options);
}

class GrpcServer implements RpcServer {
  readonly #log: AnswerDeps["log"];
  readonly #options: RpcServerOptions;
  readonly #openCalls = new OpenCalls();
  readonly #health = new Health([SessionService.typeName]);
  readonly #server: Server;
  readonly #listener: Listener;
  #address: string;
  #started: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;

  constructor(
    deps: Omit<AnswerDeps, "openCalls"> & { readonly handlers: SessionHandlers },
    options: RpcServerOptions,
  ) {
    this.#log = deps.log;
    this.#options = options;
    this.#address = options.address;
    const answers = answersOf({ ...deps, openCalls: this.#openCalls }, deps.handlers, options);
    this.#server = newServer(options, interceptor(answers, this.#openCalls));
    const injector = this.#server.createConnectionInjector(ServerCredentials.createInsecure());
    this.#listener = new Listener((socket) => injector.injectConnection(socket));
    this.#server.addService(definitionOf(SessionService), {});
    this.#health.addTo(this.#server);
    if (options.reflection) {
      addReflection(this.#server, [file_ambient_v1_sessions, file_google_rpc_error_details]);
    }
  }

  get address(): string {
    return this.#address;
  }

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
    this.#address = await this.#listener.listen(this.#options.address);
    this.setServing(true);
  }

  async #end(): Promise<void> {
    this.#health.set(false);
    await this.#started?.catch(() => undefined);
    const handlersDone = this.#openCalls.close();
    const connectionsClosed = this.#listener.close();
    this.#server.tryShutdown(() => undefined); // The listener knows better when they are gone.
    const done = Promise.all([handlersDone, connectionsClosed]);
    if (await isDoneWithin(done, this.#options.stopLimitMs)) return;
    this.#log.warn({ handlers: this.#openCalls.handlersRunning }, "calls cut at the stop limit");
    this.#listener.cut();
    if (await isDoneWithin(done, CUT_HANDLERS_LIMIT_MS)) return;
    this.#log.error({ handlers: this.#openCalls.handlersRunning }, "handlers still run after stop");
  }
}

function newServer(options: RpcServerOptions, intercept: ServerInterceptor): Server {
  const { keepalive = KEEPALIVE, requestBytesMax = REQUEST_BYTES_MAX } = options;
  return new Server({
    "grpc.max_receive_message_length": requestBytesMax,
    "grpc.max_concurrent_streams": CALLS_PER_CONNECTION_MAX,
    "grpc.keepalive_time_ms": keepalive.intervalMs,
    "grpc.keepalive_timeout_ms": keepalive.timeoutMs,
    "grpc.enable_channelz": 0, // It counts every call and message for a service that is not offered.
    interceptors: [intercept],
  });
}

function interceptor(
  answers: ReturnType<typeof answersOf>,
  openCalls: OpenCalls,
): ServerInterceptor {
  return (method, wire) => {
    const answer = answers.get(method.path);
    if (answer !== undefined)
      return new ServerInterceptingCall(wire, { start: () => answer(wire) });
    if (!method.responseStream) return new ServerInterceptingCall(wire);
    // Health's watches and reflection have no end of their own, and would hold a stop up to its limit.
    const forget = openCalls.adopt({ fail: (error) => wire.sendStatus(statusOf(error)) });
    return new ServerInterceptingCall(wire, { start: (next) => next({ onCancel: forget }) });
  };
}

async function isDoneWithin(done: Promise<unknown>, limitMs: number): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => late.resolve(false), limitMs);
  try {
    return await Promise.race([done.then(() => true), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
