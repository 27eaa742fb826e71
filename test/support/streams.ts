/**
 * AG-UI streams for tests: small ones written by hand, which between them hold every event type and
 * the cases that are easy to get wrong, or recorded ones, given CORPUS: a folder with a
 * `recorded.jsonl.gz`, one stream a line, `{"agent","scenario","events":[…]}`.
 */
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { gunzipSync } from "node:zlib";

export interface StreamEvent {
  readonly eventType: string;
  readonly payload: string;
}

export interface Stream {
  readonly agent: string;
  readonly scenario: string;
  readonly events: readonly StreamEvent[];
}

export function ownStreams(): readonly Stream[] {
  const files = globSync(join(import.meta.dirname, "streams", "*.jsonl")).toSorted();
  return files.map((file) => ({
    agent: "hand-written",
    scenario: basename(file, ".jsonl"),
    events: linesOf(readFileSync(file, "utf8")).map((payload) => ({
      eventType: typeOf(JSON.parse(payload)),
      payload,
    })),
  }));
}

/** Undefined when CORPUS names no folder. */
export function recordedStreams(): readonly Stream[] | undefined {
  const folder = process.env["CORPUS"];
  if (folder === undefined || folder === "") return undefined;
  const packed = readFileSync(join(folder, "recorded.jsonl.gz"));
  return linesOf(gunzipSync(packed).toString("utf8")).map((line) => {
    const { agent, scenario, events } = objectOf(JSON.parse(line));
    if (!Array.isArray(events)) throw new TypeError("a recorded stream has events");
    return {
      agent: String(agent),
      scenario: String(scenario),
      events: events.map((event) => ({ eventType: typeOf(event), payload: JSON.stringify(event) })),
    };
  });
}

function linesOf(text: string): readonly string[] {
  return text.split("\n").filter((line) => line !== "");
}

function typeOf(event: unknown): string {
  return String(objectOf(event)["type"]);
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new TypeError("not a JSON object");
  return { ...value };
}
