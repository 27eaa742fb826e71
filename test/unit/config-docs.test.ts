/**
 * The lists of docs/configuration.md and docs/operations.md are generated from the code. With
 * UPDATE_DOCS=1 this test writes them; without it, it compares them with the pages.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { exitHelp } from "../../src/cli/io.ts";
import { REMOVED_SETTINGS } from "../../src/config/config.ts";
import { CLIENT_SETTINGS, SERVICE_SETTINGS } from "../../src/config/table.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

const DOCS = fileURLToPath(new URL("../../docs", import.meta.url));
const page = (name: string): string => readFileSync(`${DOCS}/${name}.md`, "utf8");

function configMarkdown(): string {
  const settings = [...Object.values(SERVICE_SETTINGS), ...Object.values(CLIENT_SETTINGS)];
  const lines = settings.map(({ name, fallback, meaning }) => {
    const shown = fallback === undefined ? "" : ` (\`${fallback}\`)`;
    return `- \`${name}\`${shown}: ${meaning}`;
  });
  return ["", ...lines, ""].join("\n");
}

/** The names of our own metrics, not of those of every Node.js process. Their HELP texts are in /metrics. */
async function metricsMarkdown(): Promise<string> {
  const text = await createMetrics().text();
  const names = [...text.matchAll(/^# HELP session_ledger_(?!process_|nodejs_)(\S+) \S.+$/gm)];
  return ["", names.map(([, name = ""]) => `\`${name}\``).join(", "), ""].join("\n");
}

function withSection(document: string, name: string, body: string): string {
  const section = new RegExp(`(<!-- ${name}: [^>]+ -->\n)[^]*?(<!-- end -->)`);
  expect(document).toMatch(section);
  return document.replace(section, (_, start: string, end: string) => `${start}${body}\n${end}`);
}

test("the generated lists are up to date", async () => {
  const pages = {
    configuration: { configuration: configMarkdown() },
    operations: { metrics: await metricsMarkdown() },
  };
  for (const [name, sections] of Object.entries(pages)) {
    const updated = Object.entries(sections).reduce(
      (text, [section, body]) => withSection(text, section, body),
      page(name),
    );
    if (process.env["UPDATE_DOCS"] === "1") writeFileSync(`${DOCS}/${name}.md`, updated);
    expect(page(name)).toBe(updated);
  }
});

test("every exit code is on the page, and no other", () => {
  const [, shown = ""] = page("operations").split("\nExit codes,");
  const codesOf = (text: string, pattern: RegExp) =>
    [...text.matchAll(pattern)].map(([, code]) => code);
  expect(codesOf(shown, /^- (\d+): /gm)).toEqual(codesOf(exitHelp(), /^ +(\d+) +/gm));
});

test("every removed setting is named once", () => {
  for (const name of Object.keys(REMOVED_SETTINGS))
    expect(page("configuration").split(`\`${name}\``)).toHaveLength(2);
});

test("metrics and settings named in the text exist", async () => {
  const document = ["configuration", "operations", "runbook"].map(page).join("\n");
  const metrics = await createMetrics().text();
  const named = document.match(/session_ledger_[a-z_]+/g) ?? [];
  expect(named.filter((name) => !metrics.includes(`# HELP ${name} `))).toEqual([]);
  const settings = new Set<string>([
    ...Object.values(SERVICE_SETTINGS).map(({ name }) => name),
    ...Object.keys(REMOVED_SETTINGS),
  ]);
  const limits = document.match(/\b[A-Z_]+_(?:MAX|MS|ADDRESS|DIR|URL|CONNECTIONS)\b/g) ?? [];
  const others = limits.filter((name) => !settings.has(name));
  expect(new Set(others)).toEqual(new Set(["SESSION_LEDGER_ADDRESS"]));
});
