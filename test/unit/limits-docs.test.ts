/** The settings, defaults and metrics in docs/limits.md exist, and each limit has a test. */
import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { EVENT_COUNT_MAX } from "@session-ledger/agui/catalogue";
import { JSON_DEPTH_MAX } from "@session-ledger/agui/payload";
import { EXPANDED_BYTES_MAX } from "@session-ledger/compressor/fragments";
import { SERVICE_SETTINGS } from "../../src/config/table.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

const PAGE = readFileSync("docs/limits.md", "utf8");

/**
 * The test at the border of each limit of the page: the limit, the file below test/, a title in it.
 */
const TESTS: readonly (readonly [limit: string, file: string, title: string])[] = [
  [
    "bytes a second of one caller",
    "unit/rate-limits",
    "accepts five pushes and refuses the sixth with the time to wait",
  ],
  [
    "bytes a second into one session",
    "e2e/limits",
    "above the limit is refused with a retry time and not stored",
  ],
  ["gRPC connections", "e2e/rpc-requests", "connections above the limit are closed"],
  [
    "calls of a connection",
    "e2e/rpc-requests",
    "calls above the limit of a connection wait at their caller",
  ],
  [
    "bytes held for callers",
    "e2e/rpc-requests",
    "reserve their stated size, and a caller with half of the memory gets no more",
  ],
  [
    "seconds without a sent byte of an answer",
    "e2e/rpc-requests",
    "end their call when the caller takes nothing for the time limit",
  ],
  [
    "bytes of a request",
    "e2e/rpc-server",
    "a request of 4 MiB is read, and one byte more is RESOURCE_EXHAUSTED",
  ],
  [
    "push streams of an instance",
    "e2e/push-stream-ends",
    "refuses a stream above half of its limit, and opens the next when one has ended",
  ],
  [
    "uncommitted payload bytes of a push stream",
    "unit/push-stream",
    "close the group at the maximum of uncommitted bytes, and pause the caller",
  ],
  [
    "uncommitted events of a push stream",
    "unit/push-stream",
    "pause the caller at the maximum of uncommitted events",
  ],
  [
    "events of a frame",
    "unit/push-stream-numbers",
    "more events than a batch may have are refused",
  ],
  [
    "events of an array over HTTP",
    "e2e/http-push",
    "of ten thousand events is stored whole, and one more is refused",
  ],
  [
    "watches of an instance",
    "unit/live-watch",
    "bound the watchers of a session and of the service, and a leaving one makes room",
  ],
  [
    "watches of a session on an instance",
    "e2e/http-live-refused",
    "a watch above the limit is 429 with Retry-After",
  ],
  [
    "feeds of an instance",
    "unit/feeds",
    "a feed above the limit is refused, and a stop ends the feeds with UNAVAILABLE",
  ],
  [
    "sessions of a page",
    "postgres/session-scope",
    "a page of sessions above 3 MiB comes without $left",
  ],
  ["labels of a list of sessions", "e2e/bad-input", "a wrong value is refused by its name"],
  ["rows of a page", "e2e/bad-input", "a wrong value is refused by its name"],
  [
    "messages of a turn",
    "e2e/turns",
    "takes the waiting user messages in order, and stores the start of the run",
  ],
  ["rows, and stored bytes, of a fork", "postgres/fork", "above a limit is refused by the size"],
  [
    "lists, searches, forks and earlier transcripts of a caller at once, and that wait",
    "unit/long-reads",
    "64 reads of a caller wait, further ones are refused, and those of others are not",
  ],
  [
    "sessions that `page` and `size` reach, that a page of a filter reads, and that a total counts",
    "postgres/session-list",
    "of a text reads a part of the sessions for a page, and its total is a lower bound",
  ],
  ["bytes of the reason of a cancel", "e2e/bad-input", "a wrong value is refused by its name"],
  ["seconds that a claim waits", "e2e/turns", "names each wrong field, and stores nothing"],
  ["exports of an instance under way", "unit/http-export", "is refused while 64 others are open"],
  [
    "replays under way: AG-UI answers with `replay=events`, or without a snapshot that fits a frame, until they are live",
    "unit/agui-join",
    "is refused above the limit, until another replay ends",
  ],
  [
    "bytes of a payload",
    "e2e/bad-input",
    "over the limit %s is RESOURCE_EXHAUSTED and stores nothing",
  ],
  ["JSON levels of a payload", "packages/agui/test/spans", "has at most ${JSON_DEPTH_MAX} levels"],
  [
    "JSON levels of a body over HTTP, and of a line of an import",
    "e2e/deep-json",
    "is refused by its line, and the command continues",
  ],
  [
    "bytes of an idempotency key, of a run id (`runId` of RUN_STARTED)",
    "packages/agui/test/split-event",
    "a run id of more than 128 bytes",
  ],
  [
    "rows of a session, messages and events together",
    "e2e/limits",
    "the last row with room is stored, the next is refused, and a repeated one is answered",
  ],
  [
    "bytes of a session: payloads, senders, run ids, fragment indexes",
    "e2e/limits",
    "payloads are stored up to the last byte",
  ],
  [
    "messages of a session with feedback of one person",
    "postgres/feedback",
    "of one person leaves room for others, and all together have a share",
  ],
  [
    "messages of a session with feedback, for all people together",
    "postgres/feedback",
    "of one person leaves room for others, and all together have a share",
  ],
  [
    "changes of one person's feedback on one message",
    "e2e/feedback",
    "has a limit of changes, which the error names",
  ],
  [
    "messages that wait for a turn in a session that was claimed",
    "e2e/limits",
    "one message above PENDING_MAX is refused with a retry time, until a claim makes room",
  ],
  ["rows of a commit", "unit/push-queue", "ends at its maximum of rows"],
  [
    "payload bytes of a commit",
    "unit/push-queue",
    "ends at its maximum of bytes, and always has one push",
  ],
  [
    "free bytes on the disk of the embedded PostgreSQL",
    "e2e/embedded-trouble",
    "a disk that is nearly full refuses pushes with DISK_FULL, and reads continue",
  ],
  [
    "rows that wait for a commit",
    "postgres/ingest",
    "a push above the limits of the queue is refused with a retry time and not stored",
  ],
  [
    "payload bytes, and 256 a row, that wait for a commit",
    "unit/push-queue",
    "refuses a push above its maximum of bytes",
  ],
  [
    "newest rows of a watched session",
    "property/window.property",
    "windows share their rows, and none shows rows of another",
  ],
  [
    "payload bytes of the same",
    "property/window.property",
    "windows share their rows, and none shows rows of another",
  ],
  [
    "payload bytes of all watched sessions",
    "unit/live-watch",
    "bound the bytes of all windows, and empty the window with the oldest last row",
  ],
  [
    "estimated bytes of kept transcripts",
    "unit/transcripts",
    "are limited in bytes, and the least recently used session is dropped first",
  ],
  [
    "remembered rates of callers, and of sessions",
    "unit/rate-limits",
    "is bounded under a flood of session ids, which does not erase existing debts",
  ],
];

interface Limit {
  readonly what: string;
  readonly setting: string | undefined;
  readonly fallback: string;
  readonly metrics: readonly string[];
}

const lines = PAGE.split("\n").filter((line) => line.startsWith("- **"));
/** The limit, its setting and default, what happens above it, and its metrics. */
const PARTS =
  /^- \*\*(.+)\*\*(?: \((?:`(\w+)`, )?([^()]+)\))?: .+; (the same|`…\w+`(?:, `…\w+`)*)$/;

/** "the same" in place of metrics repeats the line above. */
const limits = lines.reduce<readonly Limit[]>((before, line) => {
  const [, what = "", setting, fallback = "", metrics = ""] = PARTS.exec(line) ?? [];
  const own = [...metrics.matchAll(/`…(\w+)`/g)].map((match) => `session_ledger_${match[1]}`);
  const limit = {
    what,
    setting,
    fallback,
    metrics: metrics === "the same" ? (before.at(-1)?.metrics ?? []) : own,
  };
  return [...before, limit];
}, []);

test("every line of a limit has all parts", () => {
  expect(lines.length).toBeGreaterThan(0);
  expect(lines.filter((line) => !PARTS.test(line))).toEqual([]);
});

test("named settings exist and have the stated default", () => {
  const defaults = new Map(
    Object.values(SERVICE_SETTINGS).map(({ name, fallback }): [string, string | undefined] => [
      name,
      fallback,
    ]),
  );
  const wrong = limits.filter(
    ({ setting, fallback }) => setting !== undefined && defaults.get(setting) !== fallback,
  );
  expect(wrong).toEqual([]);
});

test("the fixed limits of a row are the ones in the code", () => {
  expect(PAGE).toContain(`at most ${EVENT_COUNT_MAX} events`);
  expect(PAGE).toContain(`at most ${EXPANDED_BYTES_MAX} bytes`);
  const depth = limits.find(({ what }) => what === "JSON levels of a payload");
  expect(depth?.fallback).toBe(`${JSON_DEPTH_MAX}`);
});

test("every setting that is a limit is listed", () => {
  const named = new Set(limits.map(({ setting }) => setting));
  const all = Object.values(SERVICE_SETTINGS).map(({ name }) => name);
  const wanted = all.filter((name) => /_PER_SECOND$|_MAX$/.test(name) && !/TTL/.test(name));
  expect(wanted.filter((name) => !named.has(name))).toEqual([]);
});

test("every limit has an existing metric", async () => {
  const text = await createMetrics().text();
  for (const { what, metrics } of limits) {
    const missing = metrics.filter((name) => !text.includes(`# HELP ${name} `));
    expect([what, missing]).toEqual([what, []]);
  }
  const without = limits.filter(({ metrics }) => metrics.length === 0);
  expect(without.map(({ what }) => what)).toEqual([]);
});

test("every limit has a test at its border, by file and title", () => {
  expect(limits.map(({ what }) => what)).toEqual(TESTS.map(([limit]) => limit));
  const wrong = TESTS.map(([, file, title]) => ({
    file: `${file.startsWith("packages/") ? "" : "test/"}${file}.test.ts`,
    title,
  })).filter(({ file, title }) => !existsSync(file) || !readFileSync(file, "utf8").includes(title));
  expect(wrong).toEqual([]);
});
