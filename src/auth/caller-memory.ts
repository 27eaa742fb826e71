/**
 * Whose memory is held: what the service keeps for a call is charged to the caller, by the connection
 * that it came on. Before a token was looked at the caller is unknown, and all unknown callers together
 * are one; without tokens each connection is a caller.
 */
import { ServiceError } from "../base/errors.ts";
import type { Charge, EndReason, Holder } from "../base/charge.ts";
import type { CallerId, FairShare } from "../base/fair-share.ts";
import { actorOf, type Principal } from "./principal.ts";

/** No actor has such a name. */
const UNKNOWN = "?";
const RETRY_AFTER_MS = 1_000;

/**
 * An answer of which nothing leaves for this long is ended: as long as a request may take to come. The
 * gRPC server counts it in ticks; the HTTP server leaves it to Node, which looks at what its socket has
 * written, so a slow client that reads is not cut.
 */
export const UNREAD_LIMIT_MS = 60_000;

/** A connection of either server. */
export interface Closing {
  once(event: "close", listener: () => void): unknown;
}

export class CallerMemory {
  readonly #all: FairShare;
  readonly #asks: boolean;
  readonly #connections = new WeakMap<Closing, ConnectionMemory>();

  constructor(all: FairShare, { asks }: { readonly asks: boolean }) {
    this.#all = all;
    this.#asks = asks;
  }

  get all(): FairShare {
    return this.#all;
  }

  of(connection: Closing): ConnectionMemory {
    const known = this.#connections.get(connection);
    if (known !== undefined) return known;
    const name = this.#asks ? UNKNOWN : undefined;
    const made = new ConnectionMemory(this.#all, { name, connection });
    this.#connections.set(connection, made);
    connection.once("close", () => made.closed());
    return made;
  }
}

export class ConnectionMemory {
  readonly #all: FairShare;
  readonly #connection: Closing;
  /** Of the caller of its last call: the next one is most often of the same. */
  #holder: Holder;
  #principal: Principal | undefined;

  constructor(all: FairShare, id: CallerId & { readonly connection: Closing }) {
    this.#all = all;
    this.#connection = id.connection;
    this.#holder = all.holder(id);
  }

  /** `end` ends the call, of which nothing is to be held then. */
  call(end: (error: ServiceError) => void): CallMemory {
    return new CallMemory(
      this,
      this.#holder.charge((reason) => end(endedBy(reason))),
      end,
    );
  }

  get connection(): Closing {
    return this.#connection;
  }

  of(principal: Principal): Holder {
    if (principal !== this.#principal) {
      const before = this.#holder;
      this.#holder = this.#all.holder(callerOf(principal, this.#connection));
      this.#principal = principal;
      before.leave();
    }
    return this.#holder;
  }

  closed(): void {
    this.#holder.leave();
  }
}

/** What is held for one call: its request, its answer, and rows that were read for it. */
export class CallMemory {
  readonly #connection: ConnectionMemory;
  readonly #charge: Charge;
  /** Also for what is not memory: a watch, an export. */
  readonly end: (error: ServiceError) => void;
  #fixedBytes = 0;
  #requestBytes = 0;
  #answerBytes = 0;
  #rowBytes = 0;

  constructor(connection: ConnectionMemory, charge: Charge, end: (error: ServiceError) => void) {
    this.#connection = connection;
    this.#charge = charge;
    this.end = end;
  }

  get connection(): Closing {
    return this.#connection.connection;
  }

  /** To wait for room with, and to say what the call does with what it holds. */
  get charge(): Charge {
    return this.#charge;
  }

  madeBy(principal: Principal): void {
    this.#charge.moveTo(this.#connection.of(principal));
  }

  /** The objects that are there for the call. */
  begin(bytes: number): void {
    this.#fixedBytes = bytes;
    this.#charge.become(this.#sum);
  }

  /** Of the request, or what is kept of it. False: there is no room, although it is held. */
  request(bytes: number): boolean {
    this.#requestBytes = bytes;
    return this.#charge.set(this.#sum);
  }

  /** The same, while more of it comes: whether there is room is asked of the charge. */
  requestSoFar(bytes: number): void {
    this.#requestBytes = bytes;
    this.#charge.become(this.#sum);
  }

  /** An answer that can still be refused. */
  mayAnswer(bytes: number): boolean {
    this.#answerBytes = bytes;
    if (this.#charge.set(this.#sum)) return true;
    this.answer(0);
    return false;
  }

  get hasAnswer(): boolean {
    return this.#answerBytes > 0;
  }

  /** Sent, and not taken by the caller yet. False: there is no room, and nothing else could end for it. */
  answer(bytes: number): boolean {
    this.#answerBytes = bytes;
    return this.#charge.setAnyway(this.#sum);
  }

  /** The same answer was held by another call, which has let go of it. */
  takeOverAnswer(bytes: number): void {
    this.#answerBytes = bytes;
    this.#charge.takeOver(this.#sum);
  }

  /** Read for the caller, and not sent yet. */
  rows(bytes: number): boolean {
    if (bytes === this.#rowBytes) return true;
    this.#rowBytes = bytes;
    return this.#charge.setAnyway(this.#sum);
  }

  release(): void {
    this.#charge.release();
  }

  get #sum(): number {
    return this.#fixedBytes + this.#requestBytes + this.#answerBytes + this.#rowBytes;
  }
}

function callerOf(principal: Principal, connection: object): CallerId {
  return { name: actorOf(principal), connection };
}

/** A call, as far as it matters who makes it. */
interface CallOf {
  readonly principal: Principal;
  readonly memory?: CallMemory | undefined;
}

/**
 * One of a limited number, for as long as the caller of this keeps it: throws when there is none, and ends
 * the call when a caller that has fewer needs it. A call without memory (in tests) is not ended.
 */
export function takeSeat(seats: FairShare, call: CallOf, refusal: () => ServiceError): Charge {
  const { memory, principal } = call;
  const seat = seats.take(callerOf(principal, memory?.connection ?? call), 1, () =>
    memory?.end(refusal()),
  );
  if (seat === undefined) throw refusal();
  seat.canEnd = memory !== undefined;
  return seat;
}

export function seatTaker(call: CallOf) {
  return (seats: FairShare, refusal: () => ServiceError): Charge => takeSeat(seats, call, refusal);
}

/** There is no room, for a caller that holds the most already. */
export function serverBusy(): ServiceError {
  const message =
    "the service holds as much for its callers as it may, and most of it for this one";
  return new ServiceError("overloaded", "SERVER_BUSY", message, { retryAfterMs: RETRY_AFTER_MS });
}

/** What a call is told that has to give back what it holds. */
function endedBy(reason: EndReason): ServiceError {
  if (reason === "room") return serverBusy();
  const message = "the answer was not read in time";
  return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message);
}
