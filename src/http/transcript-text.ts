/**
 * Messages of AG-UI as a person reads them. `text` glues what was said and nothing else, a paragraph a
 * message; `markdown` says who, and shows calls of tools. The data is in the JSON form.
 */
type AguiMessage = Readonly<Record<string, unknown>>;

const SPEAKERS = ["user", "assistant"];

export function plainTextOf(messages: readonly AguiMessage[]): string {
  const said = messages
    .filter(({ role }) => typeof role === "string" && SPEAKERS.includes(role))
    .map((message) => contentOf(message))
    .filter((text) => text !== "");
  return said.length === 0 ? "" : `${said.join("\n\n")}\n`;
}

export function markdownOf(messages: readonly AguiMessage[]): string {
  const parts = messages.flatMap((message) => {
    const content = contentOf(message);
    const body = message["role"] === "tool" && content !== "" ? fenced(content) : content;
    const blocks = [body, ...callsOf(message)].filter((block) => block !== "");
    return blocks.length === 0 ? [] : [`## ${titleOf(message)}`, ...blocks];
  });
  return parts.length === 0 ? "" : `${parts.join("\n\n")}\n`;
}

function titleOf({ role, name, activityType }: AguiMessage): string {
  const title = typeof role === "string" ? role : "unknown";
  const detail = [name, activityType].find((one) => typeof one === "string");
  return detail === undefined ? title : `${title} (${oneLine(detail)})`;
}

/** Text as it is, or the texts among its parts; what is data is shown as data. */
function contentOf({ content }: AguiMessage): string {
  if (typeof content === "string") return content;
  if (content === undefined || content === null) return "";
  if (!Array.isArray(content)) return fenced(JSON.stringify(content, undefined, 2), "json");
  return content
    .map((part: unknown) => {
      if (!isRecord(part)) return "";
      return typeof part["text"] === "string" ? part["text"] : `[${textOf(part["type"])}]`;
    })
    .filter((text) => text !== "")
    .join("\n\n");
}

function callsOf({ toolCalls }: AguiMessage): readonly string[] {
  if (!Array.isArray(toolCalls)) return [];
  return toolCalls.filter(isRecord).map((call) => {
    const named = isRecord(call["function"]) ? call["function"] : {};
    const name = oneLine(textOf(named["name"]));
    return `Calls \`${name}\`:\n\n${fenced(textOf(named["arguments"]), "json")}`;
  });
}

/** With more backticks than there are in the text. */
function fenced(text: string, language = ""): string {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  return `${fence}${language}\n${text}\n${fence}`;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ");
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
