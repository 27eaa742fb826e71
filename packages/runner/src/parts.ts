/** The parts of a message's content, of both generations of AG-UI, in one form and in their order. */
import { isObject, type JsonObject } from "@session-ledger/agui/json";

export type MessagePart =
  | { readonly type: "text"; readonly text: string }
  | Media
  /** No version of AG-UI has it. */
  | { readonly type: "unknown"; readonly value: unknown };

export interface Media {
  readonly type: "media";
  readonly kind: "image" | "audio" | "video" | "document";
  readonly mimeType?: string;
  /** The name of the file. */
  readonly name?: string;
  readonly source: Source;
}

/** Data is base64. A file is known to its provider alone. */
export type Source =
  | { readonly data: string }
  | { readonly url: string }
  | { readonly fileId: string; readonly provider?: string };

/** A part for each entry of a list, or one text. Nothing is left out. */
export function partsOf(content: unknown): readonly MessagePart[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content.map(partOf) : [];
}

export function textsOf(content: unknown): readonly string[] {
  return partsOf(content).flatMap((part) => (part.type === "text" ? [part.text] : []));
}

/** For display: `document application/pdf`. */
export function describePart(part: MessagePart): string {
  if (part.type === "unknown") {
    const { type } = isObject(part.value) ? part.value : {};
    return typeof type === "string" ? `a part of the type ${type}` : "a part without a type";
  }
  if (part.type === "text") return "a text";
  const { kind, mimeType = "of no type", source } = part;
  const [place] = Object.keys(source);
  return `${kind} ${mimeType} (${place === "fileId" ? "a file of a provider" : place})`;
}

/** The text of base64; undefined: it is no UTF-8. */
export function textIn(base64: string): string | undefined {
  try {
    return UTF8.decode(Buffer.from(base64, "base64"));
  } catch {
    return undefined;
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function partOf(value: unknown): MessagePart {
  if (!isObject(value)) return { type: "unknown", value };
  const { type, text } = value;
  if (typeof text === "string" && (type === "text" || type === undefined))
    return { type: "text", text };
  return mediaOf(value) ?? { type: "unknown", value };
}

function mediaOf(value: JsonObject): Media | undefined {
  const { type, metadata } = value;
  const isBinary = type === "binary";
  const from = isBinary ? value : value["source"];
  if (!isObject(from)) return undefined;
  const source = isBinary ? sourceOfBinary(value) : sourceOf(from);
  const mimeType = nonEmpty(from["mimeType"]);
  const kind = isBinary ? kindOf(mimeType) : KINDS.find((one) => one === type);
  if (kind === undefined || source === undefined) return undefined;
  const name = nonEmpty(value["filename"]) ?? nonEmpty(isObject(metadata) && metadata["filename"]);
  return {
    type: "media",
    kind,
    ...(mimeType !== undefined && { mimeType }),
    ...(name !== undefined && { name }),
    source,
  };
}

const KINDS = ["image", "audio", "video", "document"] as const;

function kindOf(mimeType = ""): Media["kind"] {
  return KINDS.find((kind) => mimeType.startsWith(`${kind}/`)) ?? "document";
}

function sourceOf({ type, value, provider }: JsonObject): Source | undefined {
  if (typeof value !== "string") return undefined;
  if (type === "data") return { data: value };
  if (type === "url") return { url: value };
  if (type !== "file") return undefined;
  return { fileId: value, ...(typeof provider === "string" && { provider }) };
}

/** The parts of clients before 1.0.0. */
function sourceOfBinary({ data, url, id }: JsonObject): Source | undefined {
  if (typeof data === "string") return { data };
  if (typeof url === "string") return { url };
  return typeof id === "string" ? { fileId: id } : undefined;
}

function nonEmpty(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
