/**
 * Charges the memory that the service holds for a call to the caller, through the connection of the
 * call. Before the token is verified the caller is unknown, and all unknown callers together count
 * as one; without tokens each connection counts as a caller.
 */
import { ServiceError } from "@session-ledger/base/errors";
import type { CallerId, Lease, EndReason, FairShare, ConnectionShare } from "../base/fair-share.ts";
import { actorOf, type Principal } from "./principal.ts";

/** No actor has this name. */
const UNKNOWN = "?";

/**
 * An answer ends when none of its bytes leaves for this time. The gRPC server counts ticks; HTTP
 * uses Node's socket timeout, which counts written bytes, so a slow client that reads is not cut.
 */
export const UNREAD_LIMIT_MS = 60_000;

/** A connection of either server. */
interface ClosableConnection {
  once(event: "close", listener: () => void): unknown;
}

export class CallerMemory {
  readonly all: FairShare;
  readonly #asks: boolean;
  readonly #connections = new WeakMap<ClosableConnection, ConnectionMemory>();

  constructor(all: FairShare, { asks }: { readonly asks: boolean }) {
    this.all = all;
    this.#asks = asks;
  }

  of(connection: ClosableConnection): ConnectionMemory {
    const existing = this.#connections.get(connection);
    if (existing !== undefined) return existing;
    const name = this.#asks ? UNKNOWN : undefined;
    const made = new ConnectionMemory(this.all, { name, connection });
    this.#connections.set(connection, made);
    connection.once("close", () => made.onClose());
    return made;
  }
}

export class ConnectionMemory {
  readonly #all: FairShare;
  readonly connection: ClosableConnection;
  /** The caller of its last call: the next call is most often of the same caller. */
  #share: ConnectionShare;
  #principal: Principal | undefined;

  constructor(all: FairShare, id: CallerId & { readonly connection: ClosableConnection }) {
    this.#all = all;
    this.connection = id.connection;
    this.#share = all.connection(id);
  }

  /** `end` must end the call and free all memory held for it. */
  call(end: (error: ServiceError) => void): CallMemory {
    return new CallMemory(
      this,
      this.#share.lease((reason) => end(endedBy(reason))),
      end,
    );
  }

  of(principal: Principal): ConnectionShare {
    if (principal !== this.#principal) {
      const before = this.#share;
      this.#share = this.#all.connection(callerOf(principal, this.connection));
      this.#principal = principal;
      before.leave();
    }
    return this.#share;
  }

  onClose(): void {
    this.#share.leave();
  }
}

/** The memory held for one call: its request, its answer, and rows read for it. */
export class CallMemory {
  readonly #connection: ConnectionMemory;
  /** Used to wait for room, and to report how the call uses its memory. */
  readonly lease: Lease;
  /** Also for other limited resources: a watch, an export. */
  readonly end: (error: ServiceError) => void;
  #fixedBytes = 0;
  #requestBytes = 0;
  #answerBytes = 0;
  #rowBytes = 0;

  constructor(connection: ConnectionMemory, lease: Lease, end: (error: ServiceError) => void) {
    this.#connection = connection;
    this.lease = lease;
    this.end = end;
  }

  get connection(): ClosableConnection {
    return this.#connection.connection;
  }

  setPrincipal(principal: Principal): void {
    this.lease.moveTo(this.#connection.of(principal));
  }

  /** The fixed objects of the call. */
  begin(bytes: number): void {
    this.#fixedBytes = bytes;
    this.lease.resize(this.#sum);
  }

  /** Bytes of the request in memory. False: they are counted, but no room is free. */
  request(bytes: number): boolean {
    this.#requestBytes = bytes;
    return this.lease.set(this.#sum);
  }

  /** The same during the arrival of the request; the caller asks the lease for room. */
  requestSoFar(bytes: number): void {
    this.#requestBytes = bytes;
    this.lease.resize(this.#sum);
  }

  /** For an answer that can still be refused. */
  canAnswer(bytes: number): boolean {
    this.#answerBytes = bytes;
    if (this.lease.set(this.#sum)) return true;
    this.answer(0);
    return false;
  }

  get hasAnswer(): boolean {
    return this.#answerBytes > 0;
  }

  /** Bytes sent and not taken by the caller. False: no room, and no call could be ended for it. */
  answer(bytes: number): boolean {
    this.#answerBytes = bytes;
    return this.lease.setAnyway(this.#sum);
  }

  /** Another call held the same answer, and has freed it. */
  takeOverAnswer(bytes: number): void {
    this.#answerBytes = bytes;
    this.lease.takeOver(this.#sum);
  }

  /** Rows read for the caller, and not sent yet. */
  rows(bytes: number): boolean {
    if (bytes === this.#rowBytes) return true;
    this.#rowBytes = bytes;
    return this.lease.setAnyway(this.#sum);
  }

  release(): void {
    this.lease.release();
  }

  get #sum(): number {
    return this.#fixedBytes + this.#requestBytes + this.#answerBytes + this.#rowBytes;
  }
}

function callerOf(principal: Principal, connection: object): CallerId {
  return { name: actorOf(principal), connection };
}

/** The fields of a call that identify its caller. */
interface CallOf {
  readonly principal: Principal;
  readonly memory?: CallMemory | undefined;
}

/**
 * Takes a lease until the caller releases it. Throws when none is free, and ends the call when a
 * caller with fewer leases needs one. A call without memory (in tests) is never ended.
 */
export function acquire(limit: FairShare, call: CallOf, refusal: () => ServiceError): Lease {
  const { memory, principal } = call;
  const lease = limit.acquire(callerOf(principal, memory?.connection ?? call), 1, () =>
    memory?.end(refusal()),
  );
  if (lease === undefined) throw refusal();
  lease.canRevoke = memory !== undefined;
  return lease;
}

export function acquireFor(call: CallOf) {
  return (limit: FairShare, refusal: () => ServiceError): Lease => acquire(limit, call, refusal);
}

/** No room is free, for a caller that already holds the most. */
export function serverBusy(): ServiceError {
  const message =
    "the service holds as much for its callers as it may, and most of it for this one";
  return new ServiceError("overloaded", "SERVER_BUSY", message, { retryAfterMs: 1_000 });
}

/** The error of a call that must give its memory back. */
function endedBy(reason: EndReason): ServiceError {
  if (reason === "room") return serverBusy();
  const message = "the answer was not read in time";
  return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message);
}
