/** docs/tutorial.md does what it says: its commands are run as they stand there, in order, on one service. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { examplesOf, runExamples } from "../support/readme.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const DOCUMENT = readFileSync(join(ROOT, "docs/tutorial.md"), "utf8");

const { service } = useService();

test("curl: the commands of the tutorial print what it shows", needs("curl"), async () => {
  expect(examplesOf(DOCUMENT).length).toBeGreaterThan(10);
  await runExamples(DOCUMENT, service);
});

test.each(["concepts.md", "coverage.md", "tables.md", "tutorial.md"])(
  "every link of docs/%s leads to a file",
  (name) => {
    const url = pathToFileURL(join(ROOT, "docs", name));
    const links = [...readFileSync(url, "utf8").matchAll(/\]\((?!https?:|#)([^)#]+)/g)];
    expect(links.length).toBeGreaterThan(5);
    const missing = links.filter(([, link = ""]) => !existsSync(new URL(link, url)));
    expect(missing).toEqual([]);
  },
);
