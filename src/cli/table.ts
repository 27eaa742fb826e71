/** Records as JSON lines for programs, as a table for people; colours only on a terminal. */
import { styleText } from "node:util";
import { type Command, Option } from "commander";
import { type CliIo, Printer, visible } from "./io.ts";

const FORMATS = ["json", "table", "wide"] as const;
type Format = (typeof FORMATS)[number];

export interface OutputFlags {
  readonly output?: Format;
  readonly json?: boolean;
  readonly limit?: number;
}

export function addOutputOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        "-o, --output <format>",
        "JSON lines, a table, or a table with more columns; default: table on a terminal, json elsewhere",
      ).choices(FORMATS),
    )
    .addOption(new Option("--json", "short for --output json").conflicts("output"));
}

export interface Column<R> {
  readonly heading: string;
  /** Fixed, so that a page can be printed before the next one is read. 0: not padded. */
  readonly width: number;
  /** True: only with `--output wide`. */
  readonly isWide?: boolean;
  readonly text: (record: R) => string;
  readonly style?: (record: R) => Style | undefined;
}

/** Without a width the value is not padded. */
export function column<R>(heading: string, text: (record: R) => string, width = 0): Column<R> {
  return { heading, width, text };
}

/** Shown only with `--output wide`. */
export function wide<R>(shown: Column<R>): Column<R> {
  return { ...shown, isWide: true };
}

type Style = "bold" | "green" | "yellow" | "red";

export interface Forms<R> {
  readonly json: (record: R) => string;
  readonly columns: readonly Column<R>[];
}

/** Prints the records, a line each, while somebody reads the lines. */
export async function printRecords<R>(
  records: AsyncIterable<R>,
  { json, columns }: Forms<R>,
  { flags, io }: Printing,
): Promise<void> {
  const { printer, format, paint } = printing(flags, io);
  const shown = columns.filter(({ isWide = false }) => format === "wide" || !isWide);
  if (format !== "json") {
    const headings = shown.map(({ heading, width }) => paint("bold", heading.padEnd(width)));
    await printer.print(headings.join("  "));
  }
  let { limit: left = Number.POSITIVE_INFINITY } = flags;
  for await (const record of records) {
    left -= 1;
    const cells = shown.map(({ text, width, style }) =>
      paint(style?.(record), visible(text(record)).padEnd(width)),
    );
    const line = format === "json" ? json(record) : cells.join("  ").trimEnd();
    if (!(await printer.print(line)) || left <= 0) break;
  }
}

/** Prints one record, each value with its heading on a line; empty values are left out. */
export async function printRecord<R>(
  record: R,
  { json, columns }: Forms<R>,
  { flags, io }: Printing,
): Promise<void> {
  const { printer, format, paint } = printing(flags, io);
  if (format === "json") {
    await printer.print(json(record));
    return;
  }
  const shown = columns.filter(({ isWide = false }) => format === "wide" || !isWide);
  const width = Math.max(...shown.map(({ heading }) => heading.length));
  for (const { heading, text, style } of shown) {
    const value = visible(text(record));
    if (value === "") continue;
    const line = `${paint("bold", heading.padEnd(width))}  ${paint(style?.(record), value)}`;
    if (!(await printer.print(line))) break;
  }
}

interface Printing {
  readonly flags: OutputFlags;
  readonly io: Pick<CliIo, "stdout" | "signal">;
}

function printing({ output, json = false }: OutputFlags, { stdout, signal }: Printing["io"]) {
  const usual = stdout.isTTY === true ? "table" : "json";
  return {
    printer: new Printer(stdout, signal),
    format: json ? "json" : (output ?? usual),
    paint: (style: Style | undefined, text: string): string =>
      style === undefined || text.trim() === "" ? text : styleText(style, text, { stream: stdout }),
  } as const;
}
