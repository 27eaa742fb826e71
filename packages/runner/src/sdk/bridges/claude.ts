/**
 * The Claude Agent SDK (`@anthropic-ai/claude-agent-sdk`): the messages of `query` as AG-UI events.
 *
 *   new ClaudeBridge({ query, getSessionInfo, options: { permissionMode: "acceptEdits" } })
 *
 * The SDK keeps the history in files, so a run gives it only the new user messages. The id of its
 * session is made from the id of ours, and is the same in every process: a runner on a host with the
 * restored working folder and the SDK's own files continues the conversation.
 *
 * A tool call for which `needsApproval` is true ends the run with an interrupt, whose id is the id of the
 * call; the run that brings the answer makes the call, or refuses it.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { isObject } from "@session-ledger/agui/json";
import {
  type Adapter,
  type AgentEvent,
  capabilitiesOf,
  type FrameworkCapabilities,
  PlatformBridge,
  type PlatformContext,
  type RunInput,
} from "../bridge.ts";
import { type ClaudeMessage, ClaudeRun } from "./claude-events.ts";
import { type MessagePart, textIn } from "../../parts.ts";
import { blocksOf, isApproved, newMessages, type OnOmitted, reportOmitted } from "./history.ts";

export interface ClaudeOptions {
  /** `query` of the SDK. */
  query(parameters: {
    readonly prompt: unknown;
    readonly options?: object;
  }): AsyncIterable<ClaudeMessage>;
  /** `getSessionInfo` of the SDK. Without it a session that had a run is assumed to exist. */
  readonly getSessionInfo?: (id: string) => PromiseLike<unknown>;
  /** Options of `query`: `model`, `allowedTools`, `mcpServers`, … They win over the context's. */
  readonly options?: Readonly<Record<string, unknown>>;
  readonly needsApproval?: (toolName: string, input: unknown) => boolean;
  readonly capabilities?: Partial<FrameworkCapabilities>;
}

export class ClaudeBridge extends PlatformBridge {
  readonly #options: ClaudeOptions;

  constructor(options: ClaudeOptions) {
    super();
    this.#options = options;
  }

  override capabilities(): FrameworkCapabilities {
    return capabilitiesOf({
      framework: "claude-agent-sdk",
      agentFeatures: ["interrupt", "subagents"],
      fileSystem: true,
      mcp: true,
      sessionPersistence: true,
      thinking: true,
      ...this.#options.capabilities,
    });
  }

  override createAdapter(context: PlatformContext): Adapter {
    const { getSessionInfo } = this.#options;
    const id = claudeSessionOf(context.sessionId);
    let exists = context.isContinuation;
    return {
      run: async function* (
        this: ClaudeBridge,
        input: RunInput,
        signal: AbortSignal,
      ): AsyncGenerator<AgentEvent, void, undefined> {
        if (getSessionInfo !== undefined) exists = (await getSessionInfo(id)) !== undefined;
        const options = {
          ...this.#optionsOf(context, input, signal),
          ...(exists ? { resume: id } : { sessionId: id }),
        };
        exists = true;
        const answered = new AbortController();
        const onOmitted = reportOmitted(this.notes, "the Claude Agent SDK", input);
        const prompt = promptOf(input, onOmitted, answered.signal);
        const messages = this.#options.query({ prompt, options });
        yield* new ClaudeRun(input).events(until(messages, answered));
      }.bind(this),
    };
  }

  #optionsOf(
    { cwdPath, workspacePath, addDirs, model, mcpServers, systemPromptAppend }: PlatformContext,
    input: RunInput,
    signal: AbortSignal,
  ): Readonly<Record<string, unknown>> {
    const { options = {}, needsApproval } = this.#options;
    const abortController = new AbortController();
    signal.addEventListener("abort", () => abortController.abort(signal.reason), { once: true });
    const cwd = cwdPath ?? workspacePath;
    return {
      ...(cwd !== undefined && { cwd }),
      ...(addDirs !== undefined && { additionalDirectories: addDirs }),
      ...(model !== undefined && { model }),
      ...(mcpServers !== undefined && { mcpServers }),
      ...(systemPromptAppend !== undefined && {
        systemPrompt: { type: "preset", preset: "claude_code", append: systemPromptAppend },
      }),
      ...options,
      includePartialMessages: true,
      abortController,
      ...(needsApproval !== undefined && { hooks: withApproval(options, needsApproval, input) }),
    };
  }
}

/** The SDK wants a UUID. The same session has the same one in every process. */
export function claudeSessionOf(sessionId: string): string {
  const hex = createHash("sha256").update(sessionId).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** A hook before each call: `defer` ends the query, and the query that resumes asks the hook again. */
function withApproval(
  { hooks }: Readonly<Record<string, unknown>>,
  needsApproval: (toolName: string, input: unknown) => boolean,
  { resume = [] }: RunInput,
): object {
  const given = isObject(hooks) ? hooks : {};
  const before = Array.isArray(given["PreToolUse"]) ? given["PreToolUse"] : [];
  const decide = async (called: unknown): Promise<object> => {
    if (!isObject(called)) return {};
    const { tool_name: toolName, tool_input: toolInput, tool_use_id: callId } = called;
    if (!needsApproval(String(toolName), toolInput)) return {};
    const answer = resume.find(({ interruptId }) => interruptId === callId);
    const decided = answer === undefined ? "defer" : isApproved(answer) ? "allow" : "deny";
    return {
      hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision: decided },
    };
  };
  return { ...given, PreToolUse: [...before, { hooks: [decide] }] };
}

/**
 * One message with all new parts, or none: the SDK then continues with the call that waited for an
 * approval. The input stays open until the result arrives, because hooks are asked through it.
 */
async function* promptOf(
  input: RunInput,
  onOmitted: OnOmitted,
  answered: AbortSignal,
): AsyncGenerator<object> {
  const content = newMessages(input)
    .filter(({ role }) => role === "user")
    .flatMap((message) => blocksOf(message, blockOf, onOmitted));
  if (content.length > 0) {
    yield { type: "user", message: { role: "user", content }, parent_tool_use_id: null };
  }
  if (!answered.aborted) await once(answered, "abort");
}

/** Aborts `answered` at the first result, and at any other end. */
async function* until(
  messages: AsyncIterable<ClaudeMessage>,
  answered: AbortController,
): AsyncGenerator<ClaudeMessage> {
  try {
    for await (const message of messages) {
      if (message.type === "result") answered.abort();
      yield message;
    }
  } finally {
    answered.abort();
  }
}

/** The Messages API takes texts, pictures, PDFs and plain text. */
function blockOf(part: MessagePart): object | undefined {
  if (part.type === "text") return part;
  if (part.type === "unknown" || "fileId" in part.source) return undefined;
  const { kind, name, source: from } = part;
  const { mimeType = kind === "document" ? PDF : undefined } = part;
  const title = name === undefined ? {} : { title: name };
  if ("url" in from) {
    const source = { type: "url", url: from.url };
    if (kind === "image") return { type: "image", source };
    return mimeType === PDF ? { type: "document", source, ...title } : undefined;
  }
  const { data } = from;
  if (mimeType?.startsWith("image/"))
    return { type: "image", source: { type: "base64", media_type: mimeType, data } };
  if (mimeType === PDF)
    return { type: "document", source: { type: "base64", media_type: PDF, data }, ...title };
  const text = mimeType?.startsWith("text/") === true ? textIn(data) : undefined;
  if (text === undefined) return undefined;
  return {
    type: "document",
    source: { type: "text", media_type: "text/plain", data: text },
    ...title,
  };
}

const PDF = "application/pdf";
