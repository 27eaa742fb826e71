/**
 * A session as a file: JSON lines, compressed with gzip if accepted, sent while the session is
 * read. After the first chunk an error resets the connection: only that distinguishes a broken file
 * from a complete one, also under HTTP/1.0.
 */
import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { serverBusy, UNREAD_LIMIT_MS } from "../base/budget.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { flatMap } from "../base/pull.ts";
import type { CallContext } from "../contract/context.ts";
import { HISTORY_FORMATS } from "@session-ledger/history/to-history";
import { TimeSlice } from "../contract/time-slice.ts";
import { acceptsGzip } from "./plumbing/request-checks.ts";
import { answer, messageItem, PROBLEMS, type RouteParts } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { vary } from "./plumbing/cors.ts";
import { limitUnread } from "./plumbing/listener.ts";
import { sessionParams } from "./parameters.ts";

type ExportStream = "events" | "messages";

/** The memory of an export without its page: chunks of text, and the compressor. */
const EXPORT_BYTES = 1024 * 1024;

/** And of a history: an entry, the arguments of open calls, and their text. */
const HISTORY_BYTES = EXPORT_BYTES + 8 * 1024 * 1024;

/** Lines are sent together: a transfer chunk for each line would cost more than the line. */
const CHUNK_CHARS = 64 * 1024;

export function exportRoutes(app: App, { exports, log }: RouteParts): void {
  const linesOf = {
    events: (id, context) => flatMap(exports.exportEvents(id, context), eventLines),
    messages: (id, context) =>
      flatMap(exports.exportMessages(id, context), (message) => [`${messageItem(message)}\n`]),
  } satisfies Record<ExportStream, (id: string, context: CallContext) => AsyncIterable<string>>;

  const answerWith = async (
    { request, reply, context }: ReturnType<typeof callOf>,
    fileName: string,
    lines: AsyncIterable<string>,
  ): Promise<void> => {
    const chunks = chunksOf(lines);
    // A refusal is an error answer, and never an incomplete file.
    const first = await chunks.next();
    try {
      await send(request, reply, { fileName, first, chunks });
    } catch (error) {
      if (!context.hasEnded) log.error({ err: ServiceError.from(error) }, "export broke off");
    }
  };
  app.get("/sessions/:id/export", { schema: EXPORT }, async (request, reply) => {
    const { id } = request.params;
    const { stream } = request.query;
    const call = callOf(request, reply, EXPORT_BYTES);
    await answerWith(call, fileNameOf(id, stream), linesOf[stream](id, call.context));
  });
  app.get("/sessions/:id/history", { schema: HISTORY }, async (request, reply) => {
    const { id } = request.params;
    const call = callOf(request, reply, HISTORY_BYTES);
    const asked = { sessionId: id, format: request.query.format };
    const entries = exports.exportHistory(asked, call.context);
    const lines = flatMap(entries, (entry) => [`${JSON.stringify(entry)}\n`]);
    await answerWith(call, fileNameOf(id, "history"), lines);
  });
}

function callOf(request: FastifyRequest, reply: FastifyReply, bytes: number) {
  const context = callContextOf(request);
  if (context.memory?.resize("answer", bytes) === false) throw serverBusy();
  return { request, reply, context };
}

const FILE = { 200: answer("JSON lines.", z.string(), "application/x-ndjson"), ...PROBLEMS };

const EXPORT = {
  operationId: "exportSession",
  summary: "A whole stream as JSON lines",
  description:
    "A line an event, each as it was before compression; or a line a message. Up to the last row at the time of the call; packed with gzip where `Accept-Encoding` takes it. An answer that breaks off is not whole: its connection is reset. When too many exports are under way: 429, SERVER_BUSY.",
  tags: ["events"],
  params: sessionParams,
  querystring: z.strictObject({
    stream: z
      .enum(["events", "messages"], { error: "must be events or messages" })
      .default("events")
      .meta({ description: "Which of the two." }),
  }),
  response: FILE,
};

const HISTORY = {
  operationId: "exportHistory",
  summary: "The conversation as entries of a history",
  description:
    "A line an entry, in the format of chirino/memory-service: a text of a person, or the answer of a run. Limits and errors are those of an export.",
  tags: ["conversation"],
  params: sessionParams,
  querystring: z.strictObject({
    format: z
      .enum(HISTORY_FORMATS, { error: `must be one of ${HISTORY_FORMATS.join(", ")}` })
      .default("history")
      .meta({
        description:
          "`history`: texts. `history/lc4j`: answers with the events of LangChain4j. `text`: role and text, without ids and times.",
      }),
  }),
  response: FILE,
};

interface ExportBody {
  readonly fileName: string;
  readonly first: IteratorResult<string, void>;
  readonly chunks: AsyncGenerator<string, void>;
}

/** Resolves when the whole body was sent; rejects otherwise, after a reset of the connection. */
async function send(request: FastifyRequest, reply: FastifyReply, body: ExportBody): Promise<void> {
  const packed = acceptsGzip(request.headers["accept-encoding"]);
  vary(reply, "Accept-Encoding");
  void reply.hijack();
  const response = reply.raw;
  const headers = {
    ...reply.getHeaders(),
    "content-type": "application/x-ndjson",
    "content-disposition": `attachment; filename="${body.fileName}"`,
    ...(packed ? { "content-encoding": "gzip" } : {}),
  };
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) response.setHeader(name, value);
  }
  if (request.method === "HEAD") {
    await body.chunks.return();
    response.end();
    return;
  }
  limitUnread(response, UNREAD_LIMIT_MS);
  const source = Readable.from(resettingOnError(body, response), { highWaterMark: 1 });
  if (packed) await pipeline(source, createGzip(), response);
  else await pipeline(source, response);
}

async function* resettingOnError(
  body: ExportBody,
  response: ServerResponse,
): AsyncGenerator<string> {
  try {
    if (body.first.done === true) return;
    yield body.first.value;
    yield* body.chunks;
  } catch (error) {
    response.socket?.resetAndDestroy();
    throw error;
  } finally {
    // If the reader left after the first chunk, `yield*` never ran, so the generator is ended here.
    await body.chunks.return();
  }
}

async function* chunksOf(lines: AsyncIterable<string>): AsyncGenerator<string, void> {
  let chunk = "";
  const slice = new TimeSlice();
  for await (const line of lines) {
    const turn = slice.turn();
    if (turn !== undefined) await turn;
    chunk += line;
    if (chunk.length < CHUNK_CHARS) continue;
    yield chunk;
    chunk = "";
  }
  if (chunk !== "") yield chunk;
}

/** In JSON text a line break is white space between two tokens; inside a string it is an escape. */
function* eventLines(row: Iterable<{ readonly payload: string }>): Generator<string> {
  for (const { payload } of row) yield `${payload.replaceAll(/[\r\n]+/g, " ")}\n`;
}

/** Not every file system accepts the colon of an id, and the prefix prevents a leading dot. */
function fileNameOf(sessionId: string, stream: ExportStream | "history"): string {
  return `session-${sessionId.replaceAll(":", "_")}.${stream}.jsonl`;
}
