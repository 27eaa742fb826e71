/**
 * Readers of the feeds of all sessions, by either replica in turn: each leaves at random frames and
 * continues from the last cursor. When the writers have ended, it reads once more to the end. A feed may
 * send rows again, but it leaves none out, and the first time the rows of a session come in their order.
 */
import { setTimeout as delay } from "node:timers/promises";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { StreamName } from "../../src/store/rows.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { reasonOf } from "../support/history.ts";
import type { Witness } from "../support/history-check.ts";
import type { Random } from "../support/random.ts";
import { isBreak } from "../support/stream-clients.ts";

const { watchEvents, watchMessages } = SessionService.method;

/** The approximate number of frames of one call. */
const STAYS_FRAMES = 400;
const PAUSE_MS = 50;
const CHANNEL = { "grpc.initial_reconnect_backoff_ms": 50, "grpc.max_reconnect_backoff_ms": 200 };

interface Seen {
  readonly sessionId: string;
  readonly seq: bigint;
  readonly id: string;
}

export class FeedReader {
  readonly stream: StreamName;
  /** In the order of their first delivery. */
  readonly seen: Seen[] = [];
  repeated = 0;
  breaks = 0;
  readonly ended: Promise<void>;
  readonly #ids = new Set<string>();
  readonly #clients: readonly RpcClient[];
  readonly #random: Random;
  #cursor = "";
  #turn = 0;
  #isLast = false;
  #failure: unknown;
  #leave: () => void = () => undefined;

  constructor(
    stream: StreamName,
    { addresses, random }: { readonly addresses: readonly string[]; readonly random: Random },
  ) {
    this.stream = stream;
    this.#clients = addresses.map((address) => new RpcClient(address, CHANNEL));
    this.#random = random;
    this.ended = this.#run().catch((error: unknown) => {
      this.#failure = error;
    });
  }

  /** The writers have ended. */
  finish(): void {
    this.#isLast = true;
    this.#leave();
  }

  giveUp(): void {
    this.#failure ??= new Error("did not come to its end");
    this.#leave();
  }

  close(): void {
    for (const client of this.#clients) client.close();
  }

  /** With lost rows a number may come again with another row, so the order says nothing. */
  problemsIn({ rows }: Witness, { losesRows }: { readonly losesRows: boolean }): readonly string[] {
    const name = `feed of ${this.stream}`;
    const missing = rows
      .filter(({ stream, id }) => stream === this.stream && !this.#ids.has(id))
      .map(({ sessionId, seq }) => `${name}: has not ${sessionId} ${seq}`);
    const ends = new Map<string, bigint>();
    const outOfOrder: string[] = [];
    for (const { sessionId, seq } of losesRows ? [] : this.seen) {
      const end = ends.get(sessionId) ?? 0n;
      if (seq <= end) outOfOrder.push(`${name}: ${sessionId} ${seq} comes after ${end}`);
      ends.set(sessionId, seq);
    }
    const failure = this.#failure;
    const failed = failure === undefined ? [] : [`${name}: failed with ${reasonOf(failure)}`];
    return [...failed, ...missing, ...outOfOrder];
  }

  async #run(): Promise<void> {
    for (let isOver = false; !isOver && this.#failure === undefined; ) {
      const isLast = this.#isLast;
      try {
        isOver = await this.#read(isLast);
      } catch (error) {
        if (!isBreak(error) && reasonOf(error) !== "CANCELLED") throw error;
        this.breaks += 1;
        await delay(PAUSE_MS);
      }
    }
  }

  /** True: it has read to the end of everything. */
  async #read(isLast: boolean): Promise<boolean> {
    this.#turn += 1;
    const client = this.#clients[this.#turn % this.#clients.length];
    if (client === undefined) throw new Error("there are no clients");
    const request = { cursor: this.#cursor, snapshotOnly: isLast };
    const frames =
      this.stream === "events"
        ? client.serverStream(watchEvents, request)
        : client.serverStream(watchMessages, request);
    this.#leave = () => frames.cancel();
    for await (const frame of frames) {
      this.#saw("event" in frame ? frame.event : "message" in frame ? frame.message : undefined);
      this.#cursor = frame.cursor;
      if (!isLast && (this.#isLast || this.#random.oneIn(STAYS_FRAMES))) return false;
    }
    return isLast;
  }

  #saw(row: Seen | undefined): void {
    if (row === undefined) return;
    const { sessionId, seq, id } = row;
    if (this.#ids.has(id)) {
      this.repeated += 1;
      return;
    }
    this.#ids.add(id);
    this.seen.push({ sessionId, seq, id });
  }
}
