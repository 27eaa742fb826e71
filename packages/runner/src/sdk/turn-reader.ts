/** Reads a runner's session: the size of the next turn, its input, its end. */
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import { parseExact } from "@session-ledger/agui/exact-json";
import { isObject, parseJson, parseObject } from "@session-ledger/agui/json";
import { ledger } from "../client.ts";
import { RpcFailure } from "../failure.ts";
import type { RetryOptions } from "../retry.ts";
import { arrivalsOf, turnSize } from "../turn-blocks.ts";
import type { SessionWriter } from "../writer/types.ts";
import type { AgentEvent, AgentMessage } from "./bridge.ts";
import type { RunnerCore } from "./core.ts";
import { toRunAgentInput, type TurnInput } from "./input.ts";
import { MEMBER_BYTES_MAX } from "./run.ts";

/** How long the end of a run waits for its MESSAGES_SNAPSHOT, for each of two steps. */
const SNAPSHOT_MS = 5_000;
const OPEN_MS = 5_000;
const PAGE_SIZE = 1_000;

const HISTORY_KEPT_BY_AGENT =
  "a message regenerates or edits an earlier one, and the agent keeps its own history: it still has what was left";

function beginsBranch({ metadata }: AgentMessage): boolean {
  const { regenerates, edits } = isObject(metadata) ? metadata : {};
  return typeof regenerates === "string" || typeof edits === "string";
}

export class TurnReader {
  readonly #core: RunnerCore;
  readonly #sessionId: string;

  constructor(core: RunnerCore, sessionId: string) {
    this.#core = core;
    this.#sessionId = sessionId;
  }

  /** The messages of the next turn, by the limit of messages and by that of tokens. */
  async turnSize(): Promise<{ readonly messagesMax: number; readonly upToSeq?: bigint }> {
    const { client, options, stopping } = this.#core;
    const { messagesMax = 0, tokensMax, layout } = options;
    if (tokensMax === undefined) return { messagesMax };
    const callOptions = this.#callOptions(stopping);
    try {
      const session = await client.call(ledger.getSession, { id: this.#sessionId }, callOptions);
      const { turnSeq: afterSeq, waiting } = session;
      // Of the messages that come during the wait, the first one is taken.
      if (waiting === 0n) return { messagesMax: 1 };
      const page = { ...this.#users(messagesMax || 10), afterSeq };
      const { items } = await client.call(ledger.listSessionMessages, page, callOptions);
      const sizes = items.map((row) => arrivalsOf([row]));
      const packing = { boundary: "", ...(layout && { layout }) };
      let left = turnSize(sizes.flat(), tokensMax, packing);
      const end = sizes.findIndex(({ length }) => (left -= length) < 0);
      const last = items[end === -1 ? items.length - 1 : Math.max(0, end - 1)];
      return { messagesMax, ...(last && { upToSeq: last.seq }) };
    } catch (error) {
      if (error instanceof RpcFailure && error.code === "NOT_FOUND") return { messagesMax: 1 };
      if (stopping.aborted) return { messagesMax };
      throw error;
    }
  }

  async inputOf(turn: {
    readonly runId: string;
    readonly rows: readonly SessionMessage[];
    readonly signal: AbortSignal;
  }): Promise<TurnInput> {
    const { client, bridge, options, interrupting } = this.#core;
    const { runId, rows } = turn;
    const sessionId = this.#sessionId;
    const callOptions = this.#callOptions(AbortSignal.any([turn.signal, interrupting]));
    const transcript = await client.call(ledger.getTranscript, { sessionId }, callOptions);
    const { messages, state, upToMessageSeq } = transcript;
    const waiting: SessionMessage[] = [];
    const page = this.#users(PAGE_SIZE);
    for (let afterSeq = rows.at(-1)?.seq ?? 0n; afterSeq < upToMessageSeq; ) {
      const next = await client.call(
        ledger.listSessionMessages,
        { ...page, afterSeq },
        callOptions,
      );
      waiting.push(...next.items);
      if (!next.hasMore) break;
      afterSeq = next.nextAfterSeq;
    }
    const onlyNew = bridge.capabilities().sessionPersistence;
    const made = toRunAgentInput(
      { sessionId, runId, rows },
      {
        transcript: messagesIn(messages),
        waiting,
        ...(state !== undefined && { state: parseJson(state) }),
        onlyNew,
        boundary: crypto.randomUUID(),
        ...(options.layout && { layout: options.layout }),
      },
    );
    if (onlyNew && made.input.messages.some(beginsBranch))
      bridge.notes.problem(HISTORY_KEPT_BY_AGENT, sessionId);
    return made;
  }

  /** Undefined: the service is away, or the conversation is longer than a payload may be. */
  async snapshot(writer: SessionWriter): Promise<AgentEvent | undefined> {
    const { client, stopping } = this.#core;
    if (stopping.aborted) return undefined;
    try {
      const { complete } = await writer.flush({ timeoutMs: SNAPSHOT_MS });
      if (!complete) return undefined;
      const options = { deadlineMs: SNAPSHOT_MS, signal: stopping };
      const request = { sessionId: this.#sessionId };
      const { messages } = await client.call(ledger.getTranscript, request, options);
      if (Buffer.byteLength(messages) > MEMBER_BYTES_MAX) return undefined;
      return { type: "MESSAGES_SNAPSHOT", messages: parseExact(messages) };
    } catch {
      return undefined;
    }
  }

  /** False also when the service is away. */
  async isOpen(runId: string): Promise<boolean> {
    const request = { id: this.#sessionId };
    return this.#core.client
      .call(ledger.getSession, request, { deadlineMs: OPEN_MS })
      .then(({ openRunId }) => openRunId === runId)
      .catch(() => false);
  }

  /** True: the service has ended the run, because the cancel did not reach this runner in time. */
  async wasCancelled(runId: string): Promise<boolean> {
    const { client, stopping } = this.#core;
    const options = this.#callOptions(stopping);
    const sessionId = this.#sessionId;
    const end = { sessionId, runId, eventTypes: ["RUN_FINISHED"], pageSize: 1 };
    const [{ items }, { openRunId }] = await Promise.all([
      client.call(ledger.listSessionEvents, end, options),
      client.call(ledger.getSession, { id: sessionId }, options),
    ]);
    const { outcome } = parseObject(items[0]?.payload ?? "{}") ?? {};
    return openRunId === undefined && isObject(outcome) && outcome["type"] === "cancelled";
  }

  #users(pageSize: number) {
    return { sessionId: this.#sessionId, eventTypes: ["user"], pageSize };
  }

  /** A call that is repeated for as long as the service is away. */
  #callOptions(signal: AbortSignal): Pick<RetryOptions, "retryForMs" | "onRetry" | "signal"> {
    return { ...this.#core.retry(this.#sessionId), signal };
  }
}

/** The service makes messages with an id and a role, and nothing else. */
function messagesIn(json: string): readonly AgentMessage[] {
  const messages = parseJson(json);
  return Array.isArray(messages) ? messages : [];
}
