/** The content of a message: text, and what was attached, by reference. */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { bytes } from "../ui/format.ts";
import { visible } from "../ui/text.ts";
import { JsonTree } from "../ui/json-tree.tsx";
import { Markdown } from "./markdown.tsx";
import "./parts.css";

export function Content({ content, isLive = false }: { content: unknown; isLive?: boolean }) {
  if (typeof content === "string") return <Markdown text={content} isLive={isLive} />;
  if (!Array.isArray(content)) {
    return content === undefined || content === null ? null : <JsonTree value={content} />;
  }
  return content.map((part: unknown, at) => <Part key={at} part={part} />);
}

function Part({ part }: { part: unknown }) {
  if (!isObject(part)) return <JsonTree value={part} />;
  if (part["type"] === "text" && typeof part["text"] === "string") {
    return <Markdown text={part["text"]} />;
  }
  const attachment = attachmentIn(part);
  return attachment === undefined ? <JsonTree value={part} /> : <Attachment {...attachment} />;
}

interface Attached {
  readonly kind: string;
  readonly name: string | undefined;
  readonly mimeType: string | undefined;
  readonly url: string | undefined;
  /** Of the data inside of the message, in bytes. */
  readonly size: number | undefined;
  /** The data in base64. */
  readonly data: string | undefined;
}

/** Pictures that a browser shows without running anything; SVG may have scripts and links. */
export const PICTURE = /^image\/(?:png|jpeg|gif|webp|avif)$/;

/** `binary` parts of AG-UI before 1.0, and media parts with a source. */
function attachmentIn(part: JsonObject): Attached | undefined {
  const source = isObject(part["source"]) ? part["source"] : {};
  const metadata = isObject(part["metadata"]) ? part["metadata"] : {};
  const kind = textOf(part["type"]);
  const data =
    textOf(part["data"]) ?? (source["type"] === "data" ? textOf(source["value"]) : undefined);
  const isUrl = source["type"] === "url";
  const url = textOf(part["url"]) ?? (isUrl ? textOf(source["value"]) : undefined);
  const id =
    textOf(part["id"]) ?? (data === undefined && !isUrl ? textOf(source["value"]) : undefined);
  if (kind === undefined || (data === undefined && url === undefined && id === undefined)) {
    return undefined;
  }
  return {
    kind: kind === "binary" ? "file" : kind,
    name: textOf(part["filename"]) ?? textOf(part["name"]) ?? textOf(metadata["filename"]) ?? id,
    mimeType: textOf(part["mimeType"]) ?? textOf(source["mimeType"]),
    url: url !== undefined && /^https?:\/\//i.test(url) ? url : undefined,
    size: data === undefined ? undefined : Math.floor((data.length * 3) / 4),
    data: data !== undefined && /^[A-Za-z0-9+/=]*$/.test(data) ? data : undefined,
  };
}

function Attachment({ kind, name, mimeType = "", url, size, data }: Attached) {
  const shown = visible(name ?? url ?? kind);
  const isPicture = data !== undefined && PICTURE.test(mimeType);
  return (
    <p className="parts-attachment">
      {isPicture && (
        <img className="parts-picture" alt={shown} src={`data:${mimeType};base64,${data}`} />
      )}
      <span className="parts-kind">{visible(kind)}</span>
      {url !== undefined && (
        <a href={url} target="_blank" rel="noopener noreferrer">
          <bdi>{shown}</bdi>
        </a>
      )}
      {url === undefined && data !== undefined && (
        // As a file: the browser does not open it in the page.
        <a href={`data:application/octet-stream;base64,${data}`} download={name ?? kind}>
          <bdi>{shown}</bdi>
        </a>
      )}
      {url === undefined && data === undefined && <bdi>{shown}</bdi>}
      {mimeType !== "" && <span className="parts-type">{visible(mimeType)}</span>}
      {size !== undefined && <span>{bytes(size)}</span>}
    </p>
  );
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
