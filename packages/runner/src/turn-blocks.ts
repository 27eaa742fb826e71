/**
 * Converts a claimed turn to the input of an agent: the messages of several users in one prompt, and
 * each message stays distinguishable. Pure: rows in, blocks out, and back.
 *
 * Before the content of each arrival stands a delimiter that names its sender, in the schema
 * `openab.sender.v1`: `<sender_context>`, a line with one JSON object, `</sender_context>`. Its `<`, `>`
 * and `&` are escaped, so no name can close it. `boundary` is random for each turn: a delimiter that a
 * person types has another one.
 *
 * A prompt is never changed, cut or moved behind a later one, and the parts of a message keep their order.
 */
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import { describePart, type MessagePart, partsOf, textIn } from "./parts.ts";
import { type Sender, timeText } from "./rows.ts";
import { newMessagesOf } from "./user-messages.ts";

/** A block of content, in the shape of the Agent Client Protocol. Data is base64. */
export type ContentBlock =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "image" | "audio"; readonly data: string; readonly mimeType: string }
  | {
      readonly type: "resource_link";
      readonly uri: string;
      readonly name: string;
      readonly mimeType?: string;
    }
  | { readonly type: "resource"; readonly resource: EmbeddedResource };

/** The content of a file: its text, or base64. */
export type EmbeddedResource = { readonly uri: string; readonly mimeType?: string } & (
  | { readonly text: string }
  | { readonly blob: string }
);

/** One user message of a turn. */
export interface Arrival {
  /** The id that the sender gave the message, else that of its row. */
  readonly messageId: string;
  readonly sender: Sender;
  /** ISO 8601, UTC: when the sender sent it, else when the service accepted it. */
  readonly timestamp: string;
  /**
   * Byte for byte as it was typed; empty for attachments alone, and for a message with several texts
   * or a text behind another part: those are among the extras.
   */
  readonly prompt: string;
  /** In the order in which they came. Beside a prompt, a text is a transcript of a voice message. */
  readonly extras: readonly ContentBlock[];
}

/**
 * `split`: delimiter, texts among the extras, prompt, other extras; without a prompt the extras in their
 * order. `combined`: the delimiter and the prompt in one text, then the extras.
 */
export type Layout = "split" | "combined";

export interface PackOptions {
  readonly layout?: Layout;
  /** Unguessable, new for each turn. */
  readonly boundary: string;
}

/** The members of the JSON of a delimiter, in this order. The schema only grows. */
export interface SenderContext {
  readonly schema: "openab.sender.v1";
  readonly sender_id: string;
  readonly sender_name: string;
  readonly display_name: string;
  readonly channel: string;
  readonly channel_id: string;
  readonly thread_id?: string;
  readonly is_bot: boolean;
  readonly timestamp: string;
  readonly message_id: string;
  readonly boundary: string;
}

/** The origin of one block: its arrival, and its extra if it is one. */
export interface BlockOrigin {
  /** Index of the arrival in the turn. */
  readonly arrival: number;
  readonly part: "context" | "context and prompt" | "prompt" | "extra";
  /** Index among the extras of the arrival. */
  readonly extra?: number;
}

export interface TurnMetrics {
  /** Arrivals of the turn. */
  readonly batchSize: number;
  readonly packedBlockCount: number;
  /** Estimated tokens of everything. */
  readonly tokens: number;
  /** Estimated tokens of the delimiters; `envelope_tokens` of a claim. */
  readonly envelopeTokens: number;
}

export interface PackedTurn {
  readonly blocks: readonly ContentBlock[];
  /** One for each block, in the same order. */
  readonly attribution: readonly BlockOrigin[];
  readonly boundary: string;
  readonly metrics: TurnMetrics;
}

/** A part of a message that has no block. */
export interface PartProblem {
  readonly messageId: string;
  /** Its index in the content of the message. */
  readonly part: number;
  readonly message: string;
}

/**
 * The arrivals of the messages of a turn: one for each user message. A message that was typed
 * over AG-UI keeps its own id. Results of tools are no arrivals. Parts without a text become blocks:
 * pictures and sounds, other files as resources, a URL as a link. `onProblem` is called with each part
 * that has no block: a file that only its provider has, and a type that AG-UI does not know. Never
 * throws.
 */
export function arrivalsOf(
  messages: readonly SessionMessage[],
  onProblem: (problem: PartProblem) => void = () => {},
): readonly Arrival[] {
  return messages.flatMap((row): readonly Arrival[] => {
    const { $typeName: _, $unknown: _unknown, ...sender } = { ...row.sender };
    const timestamp = timeText(row.sentAt ?? row.createdAt);
    return newMessagesOf(row)
      .filter(({ role }) => role === "user")
      .map(({ id, content }) => {
        const parts = content === "" ? [] : partsOf(content);
        const blocks = parts.flatMap((part, at): readonly ContentBlock[] => {
          const block = blockOf(part, `agui:${encodeURIComponent(id.toWellFormed())}/${at}`);
          if (block !== undefined) return [block];
          const message = `${describePart(part)} has no block of the Agent Client Protocol`;
          onProblem({ messageId: id, part: at, message });
          return [];
        });
        return { messageId: id, sender, timestamp, ...promptAndExtras(blocks) };
      });
  });
}

/** Only a text at the beginning is a prompt, and no text may follow it: packing would move that. */
function promptAndExtras(blocks: readonly ContentBlock[]): Pick<Arrival, "prompt" | "extras"> {
  const [first, ...rest] = blocks;
  const prompt = first?.type === "text" ? first.text : "";
  const isPrompt = prompt !== "" && rest.every(({ type }) => type !== "text");
  return isPrompt ? { prompt, extras: rest } : { prompt: "", extras: blocks };
}

function blockOf(part: MessagePart, uri: string): ContentBlock | undefined {
  if (part.type !== "media") return part.type === "text" ? part : undefined;
  const { kind, mimeType, name = kind, source } = part;
  const typed = mimeType === undefined ? {} : { mimeType };
  if ("url" in source) return { type: "resource_link", uri: source.url, name, ...typed };
  if (!("data" in source)) return undefined;
  const { data } = source;
  const [type] = mimeType?.split("/") ?? [];
  if (mimeType !== undefined && (type === "image" || type === "audio"))
    return { type, data, mimeType };
  const text = type === "text" ? textIn(data) : undefined;
  const content = text === undefined ? { blob: data } : { text };
  return { type: "resource", resource: { uri, ...typed, ...content } };
}

const BYTES_PER_TOKEN = 4;
const MEDIA_TOKENS = 512;

const OPEN = "<sender_context>\n";
const CLOSE = "\n</sender_context>";
const BLANK_LINE = "\n\n";

export function packTurn(
  arrivals: readonly Arrival[],
  { layout = "split", boundary }: PackOptions,
): PackedTurn {
  const blocks: ContentBlock[] = [];
  const attribution: BlockOrigin[] = [];
  const add = (block: ContentBlock, origin: BlockOrigin) => {
    blocks.push(block);
    attribution.push(origin);
  };
  let envelopeTokens = 0;
  for (const [at, one] of arrivals.entries()) {
    const delimiter = delimiterOf(one, boundary);
    envelopeTokens += textTokens(delimiter);
    const extras = [...one.extras.entries()];
    const addExtra = ([extra, block]: readonly [number, ContentBlock]) =>
      add(block, { arrival: at, part: "extra", extra });
    if (layout === "combined") {
      const rest = one.prompt === "" ? "" : BLANK_LINE + one.prompt;
      const part = one.prompt === "" ? "context" : "context and prompt";
      add({ type: "text", text: delimiter + rest }, { arrival: at, part });
      for (const extra of extras) addExtra(extra);
      continue;
    }
    add({ type: "text", text: delimiter }, { arrival: at, part: "context" });
    if (one.prompt === "") {
      for (const extra of extras) addExtra(extra);
      continue;
    }
    for (const extra of extras) if (extra[1].type === "text") addExtra(extra);
    add({ type: "text", text: one.prompt }, { arrival: at, part: "prompt" });
    for (const extra of extras) if (extra[1].type !== "text") addExtra(extra);
  }
  const tokens = blocks.reduce((sum, block) => sum + blockTokens(block), 0);
  const metrics = {
    batchSize: arrivals.length,
    packedBlockCount: blocks.length,
    tokens,
    envelopeTokens,
  };
  return { blocks, attribution, boundary, metrics };
}

/** The packed arrivals. Throws a RangeError for a missing delimiter, or another boundary. */
export function unpackTurn({
  blocks,
  attribution,
  boundary,
}: Omit<PackedTurn, "metrics">): readonly Arrival[] {
  const arrivals: {
    head: Omit<Arrival, "prompt" | "extras">;
    prompt: string;
    extras: ContentBlock[];
  }[] = [];
  for (const [at, block] of blocks.entries()) {
    const origin = attribution[at];
    if (origin === undefined) throw new RangeError(`block ${at} has no attribution`);
    const text = block.type === "text" ? block.text : "";
    if (origin.part === "context" || origin.part === "context and prompt") {
      const end = text.indexOf(CLOSE) + CLOSE.length;
      const head = headOf(text.slice(0, end), boundary);
      if (head === undefined) throw new RangeError(`block ${at} is no delimiter of this turn`);
      arrivals.push({ head, prompt: text.slice(end + BLANK_LINE.length), extras: [] });
      continue;
    }
    const arrival = arrivals[origin.arrival];
    if (arrival === undefined) throw new RangeError(`block ${at} comes before its delimiter`);
    if (origin.part === "prompt") arrival.prompt = text;
    else arrival.extras[origin.extra ?? 0] = block;
  }
  return arrivals.map(({ head, prompt, extras }) => ({ ...head, prompt, extras }));
}

/** The JSON of the delimiter before an arrival. */
export function senderContextOf(
  { sender, timestamp, messageId }: Arrival,
  boundary: string,
): SenderContext {
  const {
    id = "",
    name = "",
    displayName = "",
    channel = "",
    channelId = "",
    threadId = "",
    isBot = false,
  } = sender;
  return {
    schema: "openab.sender.v1",
    sender_id: id,
    sender_name: name,
    display_name: displayName,
    channel,
    channel_id: channelId,
    ...(threadId !== "" && { thread_id: threadId }),
    is_bot: isBot,
    timestamp,
    message_id: messageId,
    boundary,
  };
}

export function delimiterOf(arrival: Arrival, boundary: string): string {
  const json = JSON.stringify(senderContextOf(arrival, boundary));
  const escaped = json.replaceAll(/[<>&]/g, (one) => `\\u00${one.charCodeAt(0).toString(16)}`);
  return OPEN + escaped + CLOSE;
}

function headOf(
  delimiter: string,
  boundary: string,
): Omit<Arrival, "prompt" | "extras"> | undefined {
  if (!delimiter.startsWith(OPEN) || !delimiter.endsWith(CLOSE)) return undefined;
  const context: SenderContext = JSON.parse(delimiter.slice(OPEN.length, -CLOSE.length));
  if (context.boundary !== boundary) return undefined;
  const sender: Sender = {
    id: context.sender_id,
    name: context.sender_name,
    displayName: context.display_name,
    channel: context.channel,
    channelId: context.channel_id,
    ...(context.thread_id !== undefined && { threadId: context.thread_id }),
    isBot: context.is_bot,
  };
  return { messageId: context.message_id, sender, timestamp: context.timestamp };
}

/** An estimate: a quarter of the bytes of a text, and 512 for each other part. */
function blockTokens(block: ContentBlock): number {
  if (block.type === "text") return textTokens(block.text);
  if (block.type === "resource" && "text" in block.resource) return textTokens(block.resource.text);
  return block.type === "resource_link" ? textTokens(block.uri) : MEDIA_TOKENS;
}

function textTokens(text: string): number {
  return Math.floor(new TextEncoder().encode(text).length / BYTES_PER_TOKEN) + 1;
}

/**
 * How many of the waiting arrivals make a turn of at most `tokensMax`, delimiters included: at least
 * one, because an arrival is never cut. The number of the last one is `up_to_seq` of the claim.
 */
export function turnSize(
  arrivals: readonly Arrival[],
  tokensMax: number,
  options: PackOptions,
): number {
  let tokens = 0;
  const end = arrivals.findIndex((one) => {
    tokens += packTurn([one], options).metrics.tokens;
    return tokens > tokensMax;
  });
  return end === -1 ? arrivals.length : Math.max(1, end);
}
