/** The examples in the fenced blocks of a document, and a runner for them. */
import { execFile } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect } from "vitest";
import type { ServiceProcess } from "./service-process.ts";
import { toolPath } from "./tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** The HTTP method and path, as the documents write them. */
const HTTP_ADDRESS = "127.0.0.1:8000";

export interface Example {
  /** The command as a shell takes it, over several lines if it is long. */
  readonly command: string;
  /** The output that the document shows. */
  readonly output: string;
  /** All of its block: the examples of a block continue each other. */
  readonly block: string;
}

/** Blocks of one language, in order. */
export function blocksOf(markdown: string, language: string): readonly string[] {
  const blocks = markdown.matchAll(/^```(\S+)\n([^]*?)^```$/gm);
  return [...blocks].filter(([, found]) => found === language).map(([, , text = ""]) => text);
}

/** From a heading of the second level up to the next one. */
export function sectionOf(markdown: string, heading: string): string {
  const [, section = ""] = markdown.split(`\n## ${heading}\n`);
  return section.split(/^## /m)[0] ?? "";
}

/** Commands begin with `$ ` and continue in indented lines; the output follows. */
export function examplesOf(markdown: string): readonly Example[] {
  return blocksOf(markdown, "console").flatMap((block) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((example) => {
        const [, command = "", output = ""] = /^(.*\n(?: {4}.*\n)*)([^]*)$/.exec(example) ?? [];
        return { command, output, block };
      }),
  );
}

/** Without the parts that differ at each run: ids, times, durations. */
export function comparable(output: string): string {
  return output
    .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, "<time>")
    .replaceAll(/in \d+\.\d s, \d+\/s/g, "<took>")
    .trimEnd();
}

/** Runs the examples in order against one service: each must print the shown output. */
export async function runExamples(
  markdown: string,
  { grpcAddress, httpAddress }: Pick<ServiceProcess, "grpcAddress" | "httpAddress">,
): Promise<void> {
  const env = {
    ...process.env,
    PATH: `${dirname(toolPath("curl"))}:${process.env["PATH"]}`,
    SESSION_LEDGER_ADDRESS: grpcAddress,
  };
  for (const { command, output } of examplesOf(markdown)) {
    const script = command.replaceAll(HTTP_ADDRESS, httpAddress);
    const { stdout, stderr } = await promisify(execFile)("bash", ["-c", script], {
      cwd: ROOT,
      env,
    });
    expect({ command, output: comparable((stdout + stderr).replaceAll("\r", "")) }).toEqual({
      command,
      output: comparable(output),
    });
  }
}
