/** The command `report`: the views of analytics since a time. */
import { type Command, Option } from "commander";
import { type Reported, readReport, type View, VIEWS } from "../analytics/report.ts";
import type { Config } from "../config/config.ts";
import { countArgument, timeArgument } from "./arguments.ts";
import { inDatabase } from "./database.ts";
import { type CliIo, EXIT, type ExitCode, Printer, tell, UsageError, visible } from "./io.ts";
import { configOf, type Finish } from "./serve.ts";

const FORMATS = ["table", "csv", "json"] as const;

export function addReport(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("report")
    .summary("print what runs used, from the views of analytics")
    .description(
      "print runs, tokens and calls of tools, from the views of analytics in the database itself; any role that may read the views can do it",
    )
    .argument("[view]", `${VIEWS.join(", ")}; default: daily_usage and tools`)
    .option(
      "--since <time>",
      "from this time on, or this age: 7d",
      timeArgument,
      timeArgument("7d"),
    )
    .option("--project <id>", "only sessions of this project")
    .addOption(
      new Option("--format <format>", "default: table on a terminal, json lines elsewhere").choices(
        FORMATS,
      ),
    )
    .option("-n, --limit <rows>", "at most this number of rows of a view", countArgument(), 1_000)
    .action(async (view: string | undefined, flags: ReportFlags) =>
      finish(await report(view, flags, io)),
    );
}

interface ReportFlags {
  readonly since: Date;
  readonly project?: string;
  readonly format?: (typeof FORMATS)[number];
  readonly limit: number;
}

async function report(
  asked: string | undefined,
  { since, project, format, limit }: ReportFlags,
  io: CliIo,
): Promise<ExitCode> {
  const view = VIEWS.find((one) => one === asked);
  if (asked !== undefined && view === undefined)
    throw new UsageError(`view: expected ${VIEWS.join(", ")}`);
  const as = format ?? (io.stdout.isTTY === true ? "table" : "json");
  if (as === "csv" && view === undefined)
    throw new UsageError("--format csv: expected a view, because a file has the columns of one");
  const request = {
    views: view === undefined ? (["daily_usage", "tools"] as const) : [view],
    sinceMicros: BigInt(since.getTime()) * 1_000n,
    projectId: project,
    rowsMax: limit,
  };
  const reported = await readViews(configOf(io), request);
  const printer = new Printer(io.stdout, io.signal);
  for (const one of reported) {
    for (const line of LINES[as](one)) if (!(await printer.print(line))) return EXIT.done;
    if (one.isCut) tell(io, `${one.view} has more rows: --limit`);
  }
  return EXIT.done;
}

/** A role that may read only the views sees no migrations, so the views tell whether they are there. */
function readViews(config: Config, request: Parameters<typeof readReport>[2]) {
  return inDatabase(
    config,
    () => Promise.resolve(),
    (database) => readReport(database, config.databaseSchema, request),
  );
}

const LINES: Readonly<Record<(typeof FORMATS)[number], (reported: Reported) => readonly string[]>> =
  {
    json: ({ view, rows }) => rows.map((row) => JSON.stringify({ view, ...row })),
    csv: ({ columns, rows }) => [
      columns.join(","),
      ...rows.map((row) => columns.map((column) => csvOf(row[column])).join(",")),
    ],
    table: tableOf,
  };

/** RFC 4180; a spreadsheet must not take a name as a formula. */
function csvOf(value: unknown): string {
  if (typeof value !== "string") return textOf(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The column that the bar of a view shows. */
const BARS: Readonly<Record<View, (row: Reported["rows"][number]) => number>> = {
  daily_usage: (row) => Number(row["tokens_in"]) + Number(row["tokens_out"]) || Number(row["runs"]),
  tools: (row) => Number(row["calls"]),
  runs: (row) => Number(row["duration_ms"]),
  sessions: (row) => Number(row["events"]),
};

function tableOf({ view, columns, rows }: Reported): readonly string[] {
  const bars = rows.map((row) => BARS[view](row));
  const most = Math.max(...bars);
  const shown = columns.filter((column) => rows.some((row) => row[column] !== null));
  const cells = rows.map((row) => shown.map((column) => cellOf(row[column])));
  const widths = shown.map((column, at) =>
    Math.max(column.length, ...cells.map((line) => line[at]?.length ?? 0)),
  );
  const lineOf = (texts: readonly string[], isNumber: (at: number) => boolean): string =>
    texts
      .map((text, at) =>
        isNumber(at) ? text.padStart(widths[at] ?? 0) : text.padEnd(widths[at] ?? 0),
      )
      .join("  ");
  const isNumber = (at: number) => rows.every((row) => typeof row[shown[at] ?? ""] !== "string");
  return [
    view.toUpperCase(),
    ...(rows.length === 0 ? ["nothing"] : [lineOf(shown, isNumber).trimEnd()]),
    ...cells.map((line, at) =>
      `${lineOf(line, isNumber)}  ${barOf(bars[at] ?? 0, most)}`.trimEnd(),
    ),
    "",
  ];
}

function cellOf(value: unknown): string {
  if (typeof value === "number")
    return Number.isInteger(value) ? String(value) : value.toPrecision(4).replace(/\.?0+$/, "");
  return visible(textOf(value).replace(/(T\d\d:\d\d:\d\d)\.\d+\+00:00$/, "$1Z"));
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

const BAR_CHARS = 10;
const EIGHTHS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

function barOf(value: number, most: number): string {
  if (!(value > 0)) return "";
  const eighths = Math.max(1, Math.round((value / most) * BAR_CHARS * 8));
  return "█".repeat(Math.floor(eighths / 8)) + (EIGHTHS[eighths % 8] ?? "");
}
