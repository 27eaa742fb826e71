/** A small client of server-sent events with Last-Event-ID. */
import { z } from "zod";
import type { StreamName } from "../../src/store/rows.ts";
import type { StoredRow } from "../support/stream-check.ts";

/** The stream was lost, or is not available for now. */
export class SseBroken extends Error {
  override readonly name = "SseBroken";
}

export interface SseRequest {
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly after: bigint;
  readonly signal: AbortSignal;
}

const API = "/api/ambient/v1";

/**
 * Temporary failures: too many requests, any server error, and 408, which a server that was suspended
 * sends for a request that arrived meanwhile.
 */
const PASSES = new Set([408, 429, 500, 502, 503, 504]);

const messageSchema = z.object({ seq: z.number(), event_type: z.string(), payload: z.string() });
const eventSchema = z.looseObject({ type: z.string() });

/** Rows in order; a loss is an SseBroken, and any other error is one that no follower may get. */
export async function* followSse(
  address: string,
  request: SseRequest,
): AsyncGenerator<StoredRow, void, undefined> {
  const { stream, signal } = request;
  const leaving = new AbortController();
  const response = await open(address, request, AbortSignal.any([signal, leaving.signal]));
  try {
    for await (const { id, name, data } of framesOf(response)) {
      if (name === "error") throw new SseBroken(data);
      if (name === "" && data !== "") yield rowOf(stream, { id, data });
    }
  } finally {
    leaving.abort();
  }
  throw new SseBroken("the stream ended");
}

async function open(
  address: string,
  { sessionId, stream, after }: SseRequest,
  signal: AbortSignal,
): Promise<Response> {
  const headers = { accept: "text/event-stream", "last-event-id": String(after) };
  let response: Response;
  try {
    response = await fetch(`http://${address}${API}/sessions/${sessionId}/${stream}`, {
      headers,
      signal,
    });
  } catch (error) {
    throw new SseBroken("no answer", { cause: error });
  }
  if (response.ok) return response;
  const said = await response.text().catch(() => "");
  if (PASSES.has(response.status)) throw new SseBroken(said);
  throw new Error(`SSE after ${after} refused with ${response.status}: ${said}`);
}

interface Frame {
  readonly id: string;
  readonly name: string;
  readonly data: string;
}

async function* framesOf(response: Response): AsyncGenerator<Frame, void, undefined> {
  if (response.body === null) throw new SseBroken("no body");
  const decoder = new TextDecoder();
  let rest = "";
  const chunks = response.body[Symbol.asyncIterator]();
  for (;;) {
    const chunk = await chunks.next().catch((cause: unknown) => {
      throw new SseBroken("cut off", { cause });
    });
    if (chunk.done === true) return;
    rest += decoder.decode(chunk.value, { stream: true });
    const frames = rest.split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) yield frameOf(frame);
  }
}

function frameOf(text: string): Frame {
  const fields = text.split("\n").map((line) => /^([a-z]*):? ?(.*)$/s.exec(line) ?? ["", "", ""]);
  const valueOf = (wanted: string): string =>
    fields
      .filter(([, name]) => name === wanted)
      .map(([, , value = ""]) => value)
      .join("\n");
  return { id: valueOf("id"), name: valueOf("event"), data: valueOf("data") };
}

function rowOf(
  stream: StreamName,
  { id, data }: { readonly id: string; readonly data: string },
): StoredRow {
  const seq = BigInt(id);
  if (stream === "events") {
    const { type } = eventSchema.parse(JSON.parse(data));
    return { seq, eventCount: 1, eventType: type, payload: data };
  }
  const message = messageSchema.parse(JSON.parse(data));
  if (BigInt(message.seq) !== seq) throw new Error(`id ${id} of message ${message.seq}`);
  return { seq, eventCount: 1, eventType: message.event_type, payload: message.payload };
}
