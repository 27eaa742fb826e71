/** Resumable streams with the Vercel AI SDK's own chat, its transport, and its mock model. */
import { randomUUID } from "node:crypto";
import {
  AbstractChat,
  type ChatState,
  convertToModelMessages,
  createUIMessageStreamResponse,
  DefaultChatTransport,
  streamText,
  toUIMessageStream,
  UI_MESSAGE_STREAM_HEADERS,
  type UIMessage,
} from "ai";
import { MockLanguageModelV4 } from "ai/test";
import type { ResumableStreamContext } from "resumable-stream/generic";
import { describe, expect, test } from "vitest";
import {
  createResumableStreamContext,
  type ResumableStreamOptions,
} from "@session-ledger/runner/resumable-stream";
import { rowsOf } from "../support/pushing.ts";
import { cancel, emit } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

/** The context of one process, in the type of the package that it replaces. */
function streams(options: Partial<ResumableStreamOptions> = {}): ResumableStreamContext {
  return createResumableStreamContext({ address: service.grpcAddress, ...options });
}

function source(): {
  readonly readable: ReadableStream<string>;
  readonly write: (...texts: readonly string[]) => Promise<void>;
  readonly close: () => Promise<void>;
  readonly abort: (error: Error) => Promise<void>;
} {
  const { readable, writable } = new TransformStream<string, string>();
  const writer = writable.getWriter();
  return {
    readable,
    write: async (...texts) => {
      for (const text of texts) await writer.write(text);
    },
    close: () => writer.close(),
    abort: (error) => writer.abort(error),
  };
}

async function textOf(stream: ReadableStream<string> | null | undefined): Promise<string> {
  if (stream === null || stream === undefined) throw new Error("there is no stream");
  let text = "";
  for await (const part of stream) text += part;
  return text;
}

/** The next text, of at least this length. */
async function next(reader: ReadableStreamDefaultReader<string>, length: number): Promise<string> {
  let text = "";
  while (text.length < length) text += (await reader.read()).value ?? "";
  return text;
}

const never = (): never => {
  throw new Error("made again");
};

describe("as the package resumable-stream", () => {
  test("the maker and those that resume get the whole text", async () => {
    const [id, { readable, write, close }] = [randomUUID(), source()];
    const made = await streams().resumableStream(id, () => readable);
    const wrote = write("1\n");
    const resumed = await streams().resumableStream(id, never);
    await wrote;
    await write("2\n");
    await close();
    const existing = await Promise.all([textOf(made), textOf(resumed)]);
    expect(existing).toEqual(["1\n2\n", "1\n2\n"]);
  });

  test("each reader gets a text when it is written", async () => {
    const [id, { readable, write, close }] = [randomUUID(), source()];
    const made = (await streams().createNewResumableStream(id, () => readable))?.getReader();
    const resumed = (await streams().resumeExistingStream(id))?.getReader();
    if (made === undefined || resumed === undefined) throw new Error("no stream");
    for (const text of ["one", "two"]) {
      await write(text);
      expect(await next(resumed, 3)).toBe(text);
      expect(await next(made, 3)).toBe(text);
    }
    await close();
    expect((await made.read()).done).toBe(true);
    expect((await resumed.read()).done).toBe(true);
  });

  test.each([0, 1, 2, 5, 9])("%i characters are left out", async (skip) => {
    const [id, { readable, write, close }] = [randomUUID(), source()];
    await streams().resumableStream(id, () => readable);
    await write("ab", "cde", "f");
    const resumed = await streams().resumableStream(id, never, skip);
    await close();
    expect(await textOf(resumed)).toBe("abcdef".slice(skip));
  });

  test("a stream is unknown, then open, then done", async () => {
    const [id, { readable, write, close }, context] = [randomUUID(), source(), streams()];
    expect(await context.hasExistingStream(id)).toBe(null);
    expect(await context.resumeExistingStream(id)).toBe(undefined);
    const made = await context.resumableStream(id, () => readable);
    expect(await streams().hasExistingStream(id)).toBe(true);
    await write("x");
    await close();
    await textOf(made);
    expect(await streams().hasExistingStream(id)).toBe("DONE");
    expect(await streams().resumableStream(id, never)).toBe(null);
    expect(await streams().resumeExistingStream(id)).toBe(null);
  });

  test("a reader that leaves does not end the stream", async () => {
    const [id, { readable, write, close }] = [randomUUID(), source()];
    let recorded: Promise<unknown> | undefined;
    const made = await streams({
      waitUntil: (promise) => void (recorded = promise),
    }).resumableStream(id, () => readable);
    const gone = await streams().resumeExistingStream(id);
    await write("1");
    await Promise.all([made?.cancel(), gone?.cancel()]);
    const resumed = await streams().resumeExistingStream(id);
    await write("2");
    await close();
    expect(await textOf(resumed)).toBe("12");
    await recorded;
    expect(await streams().hasExistingStream(id)).toBe("DONE");
  });
});

describe("on a ledger", () => {
  test("of ten processes that come first, one makes the stream", async () => {
    const [id, { readable, write, close }] = [randomUUID(), source()];
    let made = 0;
    const all = await Promise.all(
      Array.from({ length: 10 }, () =>
        streams().resumableStream(id, () => {
          made += 1;
          return readable;
        }),
      ),
    );
    await write("all");
    await close();
    expect(await Promise.all(all.map(textOf))).toEqual(all.map(() => "all"));
    expect(made).toBe(1);
  });

  test("a failure of the source reaches every reader", async () => {
    const [id, { readable, write, abort }] = [randomUUID(), source()];
    const made = await streams().resumableStream(id, () => readable);
    const resumed = await streams().resumeExistingStream(id);
    await write("so far");
    await abort(new Error("no model"));
    await expect(textOf(made)).rejects.toThrow("no model");
    await expect(textOf(resumed)).rejects.toThrow("no model");
  });

  test("a large text comes whole, and a stream has no messages for people", async () => {
    const [id, { readable, write, close }] = [randomUUID(), source()];
    const large = "0123456789".repeat(300_000);
    await streams().resumableStream(id, () => readable);
    await write(large);
    const resumed = await streams({ keyPrefix: "stream" }).resumeExistingStream(id);
    await close();
    expect(await textOf(resumed)).toBe(large);
  });

  test("a stream whose process was killed gives its text, and then an error", async () => {
    const id = randomUUID();
    const sessionId = `stream:${id}`; // As its process left it.
    await emit(client, sessionId, { type: "RUN_STARTED", threadId: sessionId, runId: sessionId });
    await emit(client, sessionId, {
      type: "TEXT_MESSAGE_START",
      messageId: "text",
      role: "developer",
    });
    await emit(client, sessionId, {
      type: "TEXT_MESSAGE_CONTENT",
      messageId: "text",
      delta: "half",
    });
    const resumed = (await streams({ lostAfterMs: 1 }).resumeExistingStream(id))?.getReader();
    if (resumed === undefined) throw new Error("no stream");
    expect(await next(resumed, 4)).toBe("half");
    await expect(resumed.read()).rejects.toThrow("the process of the run does not answer");
  });
});

describe("a cancelled stream", () => {
  const sessionOf = (id: string) => ({ sessionId: `stream:${id}`, runId: `stream:${id}` });

  async function endOf(id: string): Promise<unknown> {
    const rows = await rowsOf(client, "events", `stream:${id}`);
    return JSON.parse(rows.at(-1)?.payload ?? "{}");
  }

  test("ends its source, and the text of every reader", async () => {
    // Bug: the cancel was answered OK, and the source went on.
    const id = randomUUID();
    const left = Promise.withResolvers<unknown>();
    const signals: AbortSignal[] = [];
    const made = await streams().resumableStream(id, (signal?: AbortSignal) => {
      if (signal !== undefined) signals.push(signal);
      return new ReadableStream<string>({
        start: (controller) => controller.enqueue("half"),
        cancel: left.resolve,
      });
    });
    const resumed = await streams().resumeExistingStream(id);
    await cancel(client, { ...sessionOf(id), reason: "enough" });
    expect(await left.promise).toMatchObject({ name: "AbortError", reason: "enough" });
    expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
    expect(await Promise.all([made, resumed].map(textOf))).toEqual(["half", "half"]);
    expect(await endOf(id)).toMatchObject({
      type: "RUN_FINISHED",
      outcome: { type: "cancelled" },
    });
    expect(await streams().hasExistingStream(id)).toBe("DONE");
  });

  test("aborts the model of the AI SDK, and the page shows the part before it", async () => {
    const [chatId, id] = [randomUUID(), randomUUID()];
    const aborted = Promise.withResolvers<unknown>();
    const model = new MockLanguageModelV4({
      doStream: async ({ abortSignal }) => ({
        stream: new ReadableStream({
          start(controller) {
            controller.enqueue({ type: "stream-start", warnings: [] });
            controller.enqueue({ type: "text-start", id: "t" });
            controller.enqueue({ type: "text-delta", id: "t", delta: "It is " });
            abortSignal?.addEventListener("abort", () => {
              aborted.resolve(abortSignal.reason);
              controller.error(abortSignal.reason);
            });
          },
        }),
      }),
    });
    const app: typeof globalThis.fetch = async (_, init) => {
      const { messages }: { messages: UIMessage[] } = JSON.parse(
        await new Response(init?.body).text(),
      );
      const stop = new AbortController();
      const given = { model, messages: await convertToModelMessages(messages) };
      const result = streamText({ ...given, abortSignal: stop.signal });
      return createUIMessageStreamResponse({
        stream: toUIMessageStream({ stream: result.stream }),
        async consumeSseStream({ stream }) {
          await createResumableStreamContext({
            address: service.grpcAddress,
          }).createNewResumableStream(id, (signal) => {
            signal.addEventListener("abort", () => stop.abort(signal.reason));
            return stream;
          });
        },
      });
    };
    const chat = new Chat(chatId, app);
    const sent = chat.sendMessage({ text: "What is the time?" });
    await expect.poll(() => textIn(chat)).toBe("It is ");
    await expect.poll(() => streams().hasExistingStream(id)).toBe(true);
    await cancel(client, sessionOf(id));
    expect(await aborted.promise).toMatchObject({ name: "AbortError" });
    await sent;
    expect([textIn(chat), chat.status]).toEqual(["It is ", "ready"]);
    await expect.poll(() => endOf(id)).toMatchObject({ outcome: { type: "cancelled" } });
  });
});

/** What `useChat` does, without React. */
class Chat extends AbstractChat<UIMessage> {
  constructor(id: string, fetch: typeof globalThis.fetch, messages: UIMessage[] = []) {
    const state: ChatState<UIMessage> = {
      status: "ready",
      error: undefined,
      messages,
      pushMessage: (message) => void (state.messages = [...state.messages, message]),
      popMessage: () => void (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (index, message) =>
        void (state.messages = state.messages.with(index, message)),
      snapshot: (thing) => structuredClone(thing),
    };
    super({
      id,
      state,
      transport: new DefaultChatTransport({ api: "http://app.test/chat", fetch }),
    });
  }
}

describe("with the AI SDK", () => {
  test("a page that is loaded again in another process continues with the answer", async () => {
    const [chatId, streamId] = [randomUUID(), randomUUID()];
    const gate = Promise.withResolvers<void>();
    const model = new MockLanguageModelV4({
      doStream: async () => ({
        stream: new ReadableStream({
          async start(controller) {
            controller.enqueue({ type: "stream-start", warnings: [] });
            controller.enqueue({ type: "text-start", id: "t" });
            controller.enqueue({ type: "text-delta", id: "t", delta: "It is " });
            await gate.promise;
            controller.enqueue({ type: "text-delta", id: "t", delta: "noon." });
            controller.enqueue({ type: "text-end", id: "t" });
            controller.enqueue({
              type: "finish",
              finishReason: { unified: "stop", raw: "stop" },
              usage: {
                inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
                outputTokens: { total: 2, text: 2, reasoning: 0 },
              },
            });
            controller.close();
          },
        }),
      }),
    });
    // The two routes of an app, as the AI SDK's guide has them.
    const app: typeof globalThis.fetch = async (_, init) => {
      if (init?.method !== "POST") {
        const stream = await streams().resumeExistingStream(streamId);
        if (!stream) return new Response(null, { status: 204 });
        const body = stream.pipeThrough(new TextEncoderStream());
        return new Response(body, { headers: UI_MESSAGE_STREAM_HEADERS });
      }
      const { messages }: { messages: UIMessage[] } = JSON.parse(
        await new Response(init.body).text(),
      );
      const result = streamText({ model, messages: await convertToModelMessages(messages) });
      return createUIMessageStreamResponse({
        stream: toUIMessageStream({ stream: result.stream }),
        async consumeSseStream({ stream }) {
          await streams().createNewResumableStream(streamId, () => stream);
        },
      });
    };
    const first = new Chat(chatId, app);
    const sent = first.sendMessage({ text: "What is the time?" });
    await expect.poll(() => textIn(first)).toBe("It is ");
    await expect.poll(() => streams().hasExistingStream(streamId)).toBe(true);
    const reloaded = new Chat(chatId, app, first.messages.slice(0, 1));
    const resumed = reloaded.resumeStream();
    await expect.poll(() => textIn(reloaded)).toBe("It is ");
    gate.resolve();
    await Promise.all([sent, resumed]);
    expect([textIn(first), textIn(reloaded)]).toEqual(["It is noon.", "It is noon."]);
    expect(reloaded.status).toBe("ready");
    const late = new Chat(chatId, app, reloaded.messages);
    await late.resumeStream();
    expect(late.messages).toHaveLength(2);
  });
});

function textIn({ messages }: Chat): string | undefined {
  const answer = messages.find(({ role }) => role === "assistant");
  return answer?.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}
