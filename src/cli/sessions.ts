import { ledger, type LedgerClient } from "../runner/client.ts";
import { sessionJson, timeText } from "../runner/json.ts";
import { retrying, type RetryOptions } from "../runner/retry.ts";
import { type ConnectionOptions, connected } from "./connection.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import type { CliIo } from "./io.ts";
import { Printer } from "./printer.ts";
import { visible } from "./visible.ts";

export interface SessionsOptions extends ConnectionOptions {
  /** JSON lines; undefined: JSON unless stdout is a terminal. */
  readonly json: boolean | undefined;
  /** The number of sessions to print. */
  readonly limit: number | undefined;
}

type Session = Awaited<ReturnType<typeof readPage>>[number];

const PAGE_SIZE = 100;

/** Lists sessions, newest first. */
export async function sessions(options: SessionsOptions, io: CliIo): Promise<ExitCode> {
  const printer = new Printer(io.stdout, io.signal);
  const isJson = options.json ?? io.stdout.isTTY !== true;
  let left = options.limit ?? Number.POSITIVE_INFINITY;
  return connected(io, options, async ({ client, retry }) => {
    if (!isJson) await printer.print(cells(HEADINGS));
    for await (const session of allSessions(client, retry)) {
      left -= 1;
      const line = isJson ? sessionJson(session) : cells(columnsOf(session));
      if (!(await printer.print(line)) || left <= 0) break;
    }
    return EXIT.done;
  });
}

/**
 * Pages are numbered, so a new session pushes the last one of a page onto the next page; sessions
 * of the previous page are skipped.
 */
async function* allSessions(
  client: LedgerClient,
  retry: RetryOptions,
): AsyncGenerator<Session, void, undefined> {
  let before: ReadonlySet<string> = new Set();
  for (let page = 1; ; page += 1) {
    const items = await retrying(
      () => readPage(client, { page, signal: retry.signal }),
      (failure) => failure.mayPass,
      retry,
    );
    yield* items.filter((session) => !before.has(idOf(session)));
    if (items.length < PAGE_SIZE) return;
    before = new Set(items.map(idOf));
  }
}

async function readPage(
  client: LedgerClient,
  { page, signal }: { readonly page: number; readonly signal: AbortSignal | undefined },
) {
  const request = { page, size: PAGE_SIZE };
  const options = signal === undefined ? {} : { signal };
  return (await client.call(ledger.listSessions, request, options)).items;
}

function idOf(session: Session): string {
  return session.metadata?.id ?? "";
}

const HEADINGS: Columns = {
  created: "CREATED",
  active: "LAST ACTIVITY",
  phase: "PHASE",
  id: "ID",
  name: "NAME",
};

interface Columns {
  readonly created: string;
  readonly active: string;
  readonly phase: string;
  readonly id: string;
  readonly name: string;
}

function columnsOf(session: Session): Columns {
  return {
    created: seconds(timeText(session.metadata?.createdAt)),
    active: seconds(timeText(session.lastActivityAt)),
    phase: session.phase ?? "",
    id: idOf(session),
    name: session.name,
  };
}

/** Fixed widths, so that a page can be printed before the next one is read; ids are often UUIDs. */
function cells({ created, active, phase, id, name }: Columns): string {
  const columns = [created.padEnd(20), active.padEnd(20), phase.padEnd(9), id.padEnd(36), name];
  return visible(columns.join("  ").trimEnd());
}

/** RFC 3339 without the fraction: a person compares minutes. */
function seconds(time: string): string {
  return time.replace(/\.\d+Z$/, "Z");
}
