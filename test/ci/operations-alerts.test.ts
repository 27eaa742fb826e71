/** The alerts and the dashboard speak of what the service counts, and lead to a runbook that is there. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { knownMetrics, strangersIn } from "../support/metric-uses.ts";

const ruleSchema = z.strictObject({
  alert: z.string().regex(/^SessionLedger[A-Z]\w+$/),
  expr: z.string(),
  for: z.string().optional(),
  labels: z.strictObject({ severity: z.enum(["critical", "warning", "info"]) }),
  annotations: z.strictObject({
    summary: z.string(),
    description: z.string(),
    runbook_url: z.string(),
  }),
});

const rulesSchema = z.object({
  groups: z.array(z.object({ name: z.string(), rules: z.array(ruleSchema).min(1) })).min(1),
});

const gridPosSchema = z.object({ x: z.int(), y: z.int(), w: z.int(), h: z.int() });
type GridPos = z.infer<typeof gridPosSchema>;

const dashboardSchema = z.object({
  title: z.string(),
  uid: z.string(),
  schemaVersion: z.int(),
  templating: z.object({ list: z.array(z.object({ name: z.string() })) }),
  panels: z.array(
    z.object({
      id: z.int(),
      type: z.enum(["row", "timeseries"]),
      title: z.string().min(1),
      gridPos: gridPosSchema,
      targets: z.array(z.object({ refId: z.string(), expr: z.string() })).optional(),
    }),
  ),
});

function file(name: string): string {
  return readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8");
}

const { groups } = rulesSchema.parse(parse(file("operations/alerts.yaml")));
const rules = groups.flatMap((group) => group.rules);
const dashboard = dashboardSchema.parse(JSON.parse(file("operations/grafana-dashboard.json")));
const known = knownMetrics();

test("alerts use only existing metrics, labels and reasons", () => {
  expect(rules.flatMap(({ expr }) => strangersIn(expr, known))).toEqual([]);
  const names = rules.map(({ alert }) => alert);
  expect(new Set(names).size).toBe(names.length);
});

test("an unknown metric, label, reason or method is found", () => {
  const wrong = {
    "session_ledger_nothing > 0": "there is no session_ledger_nothing",
    'session_ledger_calls_total{colour="red"}': "session_ledger_calls_total has no label colour",
    'session_ledger_refused_total{reason=~"QUEUE_FULL|TIRED"}': "there is no reason TIRED",
    'session_ledger_calls_total{method="Push"}': "no method is Push",
    "sum by (colour) (session_ledger_queue_rows)":
      "no metric has the label colour: sum by (colour) (session_ledger_queue_rows)",
    "session_ledger_batch_rows > 0": "there is no session_ledger_batch_rows",
    "vector(1)": "nothing of the service: vector(1)",
  };
  for (const [query, found] of Object.entries(wrong)) {
    expect(strangersIn(query, known)).toEqual([found]);
  }
});

test("each alert links to a section of the runbook", () => {
  const headings = [...file("runbook.md").matchAll(/^#{2,4} (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, "")
      .replaceAll(" ", "-"),
  );
  const anchors = headings.map((heading) => `docs/runbook.md#${heading}`);
  const lost = rules.filter(({ annotations }) => !anchors.includes(annotations.runbook_url));
  expect(lost.map(({ annotations }) => annotations.runbook_url)).toEqual([]);
});

test("the runbook names every alert and no other", () => {
  const named = new Set(file("runbook.md").match(/\bSessionLedger[A-Z]\w+/g));
  expect(named).toEqual(new Set(rules.map(({ alert }) => alert)));
});

test("panels use only existing metrics, labels and variables", () => {
  const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  expect(queries.length).toBeGreaterThan(0);
  expect(queries.flatMap((query) => strangersIn(query, known))).toEqual([]);
  const variables = new Set(queries.join().match(/(?<=\$)\w+/g));
  variables.delete("__rate_interval");
  const defined = dashboard.templating.list.map(({ name }) => name);
  expect([...variables].filter((name) => !defined.includes(name))).toEqual([]);
});

test("every metric of the service has a panel", () => {
  const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const shown = new Set(queries.join().match(/session_ledger_\w+/g));
  const missing = [...known.keys()]
    .filter((name) => name.startsWith("session_ledger_") && !/_(?:sum|count)$/.test(name))
    .filter((name) => !shown.has(name) && !UNSHOWN.includes(name));
  expect(missing).toEqual([]);
});

/** Worth a look by hand, not a place on the wall. */
const UNSHOWN = [
  "session_ledger_push_stream_unacknowledged_bytes",
  "session_ledger_transcript_rows_total",
];

test("no two panels overlap, and each has its own id", () => {
  const { panels } = dashboard;
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  const clashes = panels.flatMap((one, index) =>
    panels
      .slice(index + 1)
      .filter((other) => overlap(one.gridPos, other.gridPos))
      .map((other) => `${one.title} and ${other.title}`),
  );
  expect(clashes).toEqual([]);
  expect(panels.filter(({ gridPos }) => gridPos.x + gridPos.w > 24)).toEqual([]);
});

function overlap(one: GridPos, other: GridPos): boolean {
  const besides = one.x + one.w <= other.x || other.x + other.w <= one.x;
  const above = one.y + one.h <= other.y || other.y + other.h <= one.y;
  return !besides && !above;
}
