/** docs/http.md does what it says: its examples are run as they stand there, in order, on one service. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { z } from "zod";
import { HTTP_STATUS } from "../../src/http/plumbing/problem.ts";
import { examplesOf, runExamples } from "../support/readme.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const DOCUMENT = readFileSync(join(ROOT, "docs/http.md"), "utf8");

const documentSchema = z.looseObject({
  paths: z.record(z.string(), z.looseObject({})),
});

const { service } = useService();

/** The items of the lists of a page. */
function itemsOf(document: string): readonly string[] {
  return [...document.matchAll(/^- (.*)$/gm)].map(([, item = ""]) => item);
}

/** The part of an item before its text. */
function nameOf(item: string): string {
  return item.split(": ", 1)[0] ?? "";
}

test("curl: the examples of docs/http.md print what it shows", needs("curl"), async () => {
  expect(examplesOf(DOCUMENT).length).toBeGreaterThan(8);
  await runExamples(DOCUMENT, service);
});

test("the lists of docs/http.md have the routes of the OpenAPI document, except AG-UI and itself", async () => {
  const answer = await fetch(`http://${service.httpAddress}/openapi.json`);
  const { paths } = documentSchema.parse(await answer.json());
  const prefix = "/api/ambient/v1";
  const served = Object.entries(paths)
    .filter(([path]) => path.startsWith(prefix) || path.startsWith("/copilotkit"))
    .flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replace(prefix, "")}`),
    );
  const described = itemsOf(DOCUMENT).flatMap((item) =>
    [...nameOf(item).matchAll(/`((?:GET|POST|PUT|PATCH|DELETE) \/[^`]*)`/g)].map(
      ([, name = ""]) => name,
    ),
  );
  expect(described.toSorted()).toEqual(served.toSorted());
});

test("the statuses of docs/http.md are those of the errors", () => {
  const described = itemsOf(DOCUMENT)
    .map(nameOf)
    .flatMap((name) => (/^\d{3}(?:, \d{3})*$/.test(name) ? name.split(", ").map(Number) : []));
  const later = [401, 403, 499, 501, 504]; // No token and no deadline here; no caller reads a 499.
  const missing = Object.values(HTTP_STATUS).filter(
    (status) => !later.includes(status) && !described.includes(status),
  );
  expect(missing).toEqual([]);
});
