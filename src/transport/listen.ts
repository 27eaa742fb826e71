import { type AddressInfo, createServer, type Server } from "node:net";
import { ServiceError } from "../base/errors.ts";

export interface ListenOptions {
  /** `host:port`; port 0 takes a free port. An IPv6 address needs brackets. */
  readonly address: string;
  /** The name of the server in the error. */
  readonly what: string;
}

/** The servers of the service, as errors name them. */
export const SERVERS = {
  grpc: "gRPC (GRPC_ADDRESS)",
  http: "HTTP (HTTP_ADDRESS)",
  ops: "metrics and health (OPS_ADDRESS)",
} as const;

/** Fails as `listen` would, and leaves the address free. */
export async function checkFree(options: ListenOptions): Promise<void> {
  const server = createServer();
  await listen(server, options);
  await close(server);
}

/** For any server that takes TCP connections: resolves to the bound `host:port`. */
export async function listen(server: Server, options: ListenOptions): Promise<string> {
  const { address } = options;
  const separator = address.lastIndexOf(":");
  const host = address.slice(0, separator);
  const port = Number(address.slice(separator + 1));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen({ host: host.replace(/^\[(.*)\]$/, "$1"), port }, resolve);
  try {
    await promise;
  } catch (cause) {
    throw cannotListen(options, cause);
  } finally {
    server.off("error", reject);
    server.off("listening", resolve);
  }
  return `${host}:${portOf(server.address())}`;
}

/** Takes no more connections; resolves when the last connection is closed. */
export function close(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  // The callback may get an error because the server does not listen; that state is correct here.
  server.close(() => resolve());
  return promise;
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("not a TCP server");
  return address.port;
}

function cannotListen({ address, what }: ListenOptions, cause: unknown): ServiceError {
  const isInUse = cause instanceof Error && "code" in cause && cause.code === "EADDRINUSE";
  const why = isInUse ? "the address is in use" : String(cause);
  const message = `${what} cannot listen on ${address}: ${why}`;
  const reason = isInUse ? "ADDRESS_TAKEN" : "INVALID_REQUEST";
  return new ServiceError("failed_precondition", reason, message, { cause });
}
