/**
 * Prints the queries of the dashboard as recording rules for promtool to parse. Grafana's variables are
 * replaced by a matcher of everything and by five minutes. `.ci/check-operations` runs it.
 */
import { readFileSync } from "node:fs";
import { stringify } from "yaml";
import { z } from "zod";

const dashboard = z
  .object({
    panels: z.array(z.object({ targets: z.array(z.object({ expr: z.string() })).default([]) })),
  })
  .parse(
    JSON.parse(
      readFileSync(
        new URL("../../docs/operations/grafana-dashboard.json", import.meta.url),
        "utf8",
      ),
    ),
  );

const queries = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
if (queries.length === 0) throw new Error("the dashboard has no queries");
const rules = queries.map((query, index) => ({
  record: `dashboard:query:${index}`,
  expr: query.replaceAll("$__rate_interval", "5m").replaceAll("$instance", ".*"),
}));
process.stdout.write(stringify({ groups: [{ name: "dashboard", rules }] }));
