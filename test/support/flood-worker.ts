/**
 * A flood in its own process: many connections, each of which pushes large messages as fast as it gets
 * answers and ignores every retry time. One message starts it, and it answers with one message at the
 * end of its time.
 */
import { type ClientHttp2Session, connect, constants } from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import {
  PushSessionMessageRequestSchema,
  SessionMessageSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import {
  ErrorInfoSchema,
  RetryInfoSchema,
} from "@session-ledger/proto/google/rpc/error_details_pb";
import { StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import { type FloodOrder, floodOrderSchema, type FloodReport } from "./flood.ts";
import { frame } from "./http2-frames.ts";
import { pace } from "./eventually.ts";

/** Time after the end in which a call may still be answered. */
const LAST_ANSWERS_MS = 10_000;
const RECONNECT_DELAY_MS = 200;
const PUSH = "/ambient.v1.SessionService/PushSessionMessage";

interface Counted {
  readonly acknowledged: Record<string, number[]>;
  readonly ends: Record<string, number>;
  withoutRetryInfo: number;
  lostConnections: number;
}

class Flood {
  readonly report: Counted = {
    acknowledged: {},
    ends: {},
    withoutRetryInfo: 0,
    lostConnections: 0,
  };
  readonly #order: FloodOrder;
  readonly #bodies: readonly Buffer[];
  readonly #endsAtMs: number;
  #next = 0;

  constructor(order: FloodOrder) {
    this.#order = order;
    this.#endsAtMs = performance.now() + order.seconds * 1_000;
    this.#bodies = order.sessionIds.map((sessionId) => {
      const payload = "x".repeat(order.payloadBytes);
      const request = { sessionId, eventType: "assistant", payload };
      const schema = PushSessionMessageRequestSchema;
      return frame(toBinary(schema, create(schema, request)));
    });
  }

  async run(): Promise<FloodReport> {
    const { connections } = this.#order;
    await Promise.all(Array.from({ length: connections }, () => this.#connection()));
    return this.report;
  }

  get #isOver(): boolean {
    return performance.now() >= this.#endsAtMs;
  }

  async #connection(): Promise<void> {
    while (!this.#isOver) {
      // Node counts the unsent rest of a refused call as held for ever: with its default of 10 MB it soon
      // refuses the answers.
      const session = connect(`http://${this.#order.address}`, { maxSessionMemory: 1_000 });
      const closed = new Promise<void>((resolve) => session.once("close", () => resolve()));
      session.on("error", () => undefined);
      const { callsAConnection } = this.#order;
      await Promise.race([
        closed,
        Promise.all(Array.from({ length: callsAConnection }, () => this.#calls(session))),
      ]);
      if (session.destroyed && !this.#isOver) {
        this.report.lostConnections += 1;
        await pace(RECONNECT_DELAY_MS);
      }
      session.destroy();
    }
  }

  async #calls(session: ClientHttp2Session): Promise<void> {
    while (!this.#isOver && !session.destroyed && !session.closed) await this.#call(session);
  }

  #call(session: ClientHttp2Session): Promise<void> {
    const index = this.#next++ % this.#bodies.length;
    const stream = session.request({
      [constants.HTTP2_HEADER_METHOD]: "POST",
      [constants.HTTP2_HEADER_PATH]: PUSH,
      [constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc",
      [constants.HTTP2_HEADER_TE]: "trailers",
      authorization: `Bearer ${this.#order.token}`,
    });
    const answer: Buffer[] = [];
    let last: Record<string, unknown> = {};
    stream.on("response", (headers) => (last = headers));
    stream.on("trailers", (trailers) => (last = trailers));
    stream.on("data", (chunk: Buffer) => answer.push(chunk));
    stream.on("error", () => undefined);
    stream.end(this.#bodies[index]);
    const late = AbortSignal.timeout(
      Math.ceil(this.#endsAtMs - performance.now() + LAST_ANSWERS_MS),
    );
    const destroy = (): void => void stream.destroy();
    late.addEventListener("abort", destroy);
    return new Promise((resolve) => {
      stream.once("close", () => {
        late.removeEventListener("abort", destroy);
        this.#ended(last, Buffer.concat(answer));
        resolve();
      });
    });
  }

  #ended(last: Readonly<Record<string, unknown>>, answer: Buffer): void {
    const status = textOf(last["grpc-status"]);
    if (status === "0") {
      const { sessionId, seq } = fromBinary(SessionMessageSchema, answer.subarray(5));
      (this.report.acknowledged[sessionId] ??= []).push(Number(seq));
    }
    const { reason, retries } = detailsOf(last["grpc-status-details-bin"]);
    const name = reason === undefined ? status : `${status} ${reason}`;
    this.report.ends[name] = (this.report.ends[name] ?? 0) + 1;
    if (status === "8" && !retries) this.report.withoutRetryInfo += 1;
  }
}

function textOf(header: unknown): string {
  return typeof header === "string" ? header : "none";
}

function detailsOf(encoded: unknown): {
  readonly reason: string | undefined;
  readonly retries: boolean;
} {
  if (typeof encoded !== "string") return { reason: undefined, retries: false };
  const { details } = fromBinary(StatusSchema, Buffer.from(encoded, "base64"));
  return {
    reason: details.map((any) => anyUnpack(any, ErrorInfoSchema)?.reason).find(Boolean),
    retries: details.some((any) => anyUnpack(any, RetryInfoSchema) !== undefined),
  };
}

async function obey(order: FloodOrder): Promise<void> {
  const report = await new Flood(order).run();
  process.send?.(report, () => process.exit(0));
}

process.once("message", (message) => void obey(floodOrderSchema.parse(message)));
