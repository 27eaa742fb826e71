/** The command `search`: texts that people and agents said, over all sessions. */
import { toJsonString } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Command, Option } from "commander";
import {
  type FoundText,
  FoundTextSchema,
  SearchOrder,
} from "@session-ledger/proto/ambient/v1/search_pb";
import { ledger } from "@session-ledger/runner/internal/client";
import { countArgument, timeArgument } from "./arguments.ts";
import { seconds } from "./columns.ts";
import { allPages, callsService, type Connection } from "./connection.ts";
import type { CliIo } from "./io.ts";
import { addOutputOptions, type Column, column, type OutputFlags, printRecords } from "./table.ts";

export function addSearch(program: Command, io: CliIo): void {
  const command = program
    .command("search")
    .summary("find texts that people and agents said")
    .description(
      'find texts that people and agents said, in all sessions that you may read: words, "a phrase", -word, or',
    )
    .argument("<words...>", "the words that a text must have")
    .option("-s, --session <id>", "only this session", "")
    .option("--project <id>", "only sessions of this project", "")
    .option("--role <role>", "only user, assistant, reasoning, tool, error or another role", "")
    .option("--type <type>", "only texts whose first row has this event type", "")
    .option(
      "--after <time>",
      "only texts that began at or after this time, or age: 7d",
      timeArgument,
    )
    .option("--before <time>", "only texts that began before this time, or age: 7d", timeArgument)
    .addOption(
      new Option("--order <order>", "best: the best match first")
        .choices(["newest", "best"])
        .default("newest"),
    )
    .option("-n, --limit <texts>", "end after this number of texts; default: 20", countArgument());
  callsService(addOutputOptions(command), io, search);
}

interface SearchFlags extends OutputFlags {
  readonly session: string;
  readonly project: string;
  readonly role: string;
  readonly type: string;
  readonly after?: Date;
  readonly before?: Date;
  readonly order: "newest" | "best";
}

const TEXTS_DEFAULT = 20;
const PAGE_SIZE_MAX = 100;

async function search(
  { client, retry, io }: Connection,
  words: readonly string[],
  { limit = TEXTS_DEFAULT, ...flags }: SearchFlags,
): Promise<void> {
  const { session: sessionId, project: projectId, role, type: eventType, after, before } = flags;
  // A word of the shell with a space is a phrase.
  const query = words.map((word) => (/^[^"]*\s[^"]*$/.test(word) ? `"${word}"` : word)).join(" ");
  const request = {
    query,
    sessionId,
    projectId,
    role,
    eventType,
    orderBy: flags.order === "best" ? SearchOrder.BEST : SearchOrder.UNSPECIFIED,
    pageSize: Math.min(limit, PAGE_SIZE_MAX),
    after: after && timestampFromDate(after),
    before: before && timestampFromDate(before),
  };
  const found = allPages(
    (pageToken) => client.call(ledger.searchTexts, { ...request, pageToken }, retry),
    (page) => page.items,
  );
  await printRecords(found, FORMS, { flags: { ...flags, limit }, io });
}

const COLUMNS: readonly Column<FoundText>[] = [
  { heading: "TIME", width: 20, text: ({ createdAt }) => seconds(createdAt) },
  { heading: "SESSION", width: 36, text: ({ sessionId }) => sessionId },
  { heading: "ROW", width: 12, text: ({ stream, seq }) => `${stream.slice(0, -1)} ${seq}` },
  {
    heading: "ROLE",
    width: 9,
    text: ({ role }) => role,
    style: ({ role }) => (role === "error" ? "red" : undefined),
  },
  { heading: "RUN", width: 36, isWide: true, text: ({ runId }) => runId },
  { heading: "TYPE", width: 20, isWide: true, text: ({ eventType }) => eventType },
  column("TEXT", ({ excerpt }) =>
    excerpt
      .map(({ text, isMatch }) => (isMatch ? `[${text}]` : text))
      .join("")
      .replaceAll(/\s+/g, " "),
  ),
];

const FORMS = { json: (text: FoundText) => toJsonString(FoundTextSchema, text), columns: COLUMNS };
