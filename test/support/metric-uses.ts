/**
 * Compares the metrics in queries of Prometheus with the metrics of the service. It reads only as much
 * of PromQL as that needs; `.ci/check-operations` has promtool parse it.
 */
import { readFileSync } from "node:fs";
import { Registry } from "prom-client";
import { vi } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createMetrics } from "../../src/observability/metrics.ts";

/** Labels of the scrape and of histograms, not of a metric. */
const LABELS_BESIDE = ["instance", "job", "le"];

/** By name, the labels of every metric, with those of the Node.js process. */
export function knownMetrics(): ReadonlyMap<string, readonly string[]> {
  const known = new Map<string, readonly string[]>();
  const registered = vi.spyOn(Registry.prototype, "registerMetric");
  try {
    createMetrics();
    for (const [metric] of registered.mock.calls) {
      const { name, labelNames, type } = fieldsOf(metric);
      const series = type === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
      for (const suffix of series) known.set(`${name}${suffix}`, labelNames);
    }
  } finally {
    registered.mockRestore();
  }
  return known;
}

/** Types that prom-client does not export. */
function fieldsOf(metric: object): { name: string; labelNames: readonly string[]; type: string } {
  const name: unknown = Reflect.get(metric, "name");
  const labelNames: unknown = Reflect.get(metric, "labelNames");
  if (typeof name !== "string" || !Array.isArray(labelNames)) throw new Error("not a metric");
  return { name, labelNames: labelNames.map(String), type: metric.constructor.name.toLowerCase() };
}

/** Everything in a query that the service does not have, in words. */
export function strangersIn(
  query: string,
  known: ReadonlyMap<string, readonly string[]>,
): readonly string[] {
  const uses = [...query.matchAll(/\b((?:session_ledger|process|nodejs)_\w+)(?:\{([^}]*)\})?/g)];
  const labelsOfAll = uses.flatMap(([, name = ""]) => known.get(name) ?? []);
  const grouped = [...query.matchAll(/\b(?:by|on|without)\s*\(([^)]*)\)/g)]
    .flatMap(([, list = ""]) => list.match(/[^\s,]+/g) ?? [])
    .filter((label) => !labelsOfAll.includes(label) && !LABELS_BESIDE.includes(label))
    .map((label) => `no metric has the label ${label}: ${query}`);
  const selected = uses.flatMap(([, name = "", selector = ""]) => {
    const labels = known.get(name);
    if (labels === undefined) return [`there is no ${name}`];
    return [...selector.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"/g)].flatMap(
      ([, label = "", value = ""]) =>
        labels.includes(label) || LABELS_BESIDE.includes(label)
          ? strangeValues(label, value)
          : [`${name} has no label ${label}`],
    );
  });
  const isOurs = uses.length > 0 || /\bup\{/.test(query);
  return [...grouped, ...selected, ...(isOurs ? [] : [`nothing of the service: ${query}`])];
}

/** Reasons of packages/base/src/errors.ts, and those of the audit for tokens and denied calls. */
const REASONS = new Set([
  ...wordsOf("packages/base/src/errors.ts", /(?<=\| ")[A-Z_]+(?=")/g),
  ...wordsOf("src/auth/refused-token.ts", /(?<=\| ")[a-z_]+(?=")/g),
  "role",
  "scope",
]);

function wordsOf(path: string, pattern: RegExp): readonly string[] {
  return readFileSync(new URL(`../../${path}`, import.meta.url), "utf8").match(pattern) ?? [];
}

/** Values of labels with a fixed set of values. */
function strangeValues(label: string, value: string): readonly string[] {
  if (label === "reason") {
    const reasons = value.split("|");
    return reasons.filter((one) => !REASONS.has(one)).map((one) => `there is no reason ${one}`);
  }
  if (label === "method") {
    const pattern = new RegExp(`^(?:${value})$`);
    const isOne = SessionService.methods.some(({ name }) => pattern.test(name));
    return isOne ? [] : [`no method is ${value}`];
  }
  return [];
}
