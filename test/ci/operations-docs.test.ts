/** docs/operations.md quotes what was measured and names what there is. */
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const DOCS = fileURLToPath(new URL("../../docs", import.meta.url));
const text = (name: string): string => readFileSync(`${DOCS}/${name}`, "utf8");
const page = text("operations.md");

function section(title: string): string {
  const [, body] = page.split(new RegExp(`^## ${title}$`, "m"));
  if (body === undefined) throw new Error(`no section ${title}`);
  return body.split(/^## /m)[0] ?? "";
}

test("every figure of the capacity is in docs/performance.md", () => {
  const measured = new Set(text("performance.md").match(/\d[\d,.]*\d|\d/g));
  const rows = [...section("Capacity").matchAll(/^- .+?: (.*\d.*)$/gm)].map(
    ([, quoted = ""]) => quoted,
  );
  expect(rows.length).toBeGreaterThan(5);
  const figures = rows.flatMap((quoted) => quoted.match(/\d[\d,.]*\d|\d/g) ?? []);
  expect(figures.filter((figure) => !measured.has(figure))).toEqual([]);
});

test("every link of the page leads to a file or a section", () => {
  const links = [...page.matchAll(/\]\(([\w./-]*)(?:#([\w-]+))?\)/g)];
  const paths = links.flatMap(([, path]) => (path === undefined || path === "" ? [] : [path]));
  expect(paths.filter((path) => !existsSync(`${DOCS}/${path}`))).toEqual([]);
  const anchors = [...page.matchAll(/^#{2,4} (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, "")
      .replaceAll(" ", "-"),
  );
  const own = links.flatMap(([, path, anchor]) => (path === "" && anchor ? [anchor] : []));
  expect(own.filter((anchor) => !anchors.includes(anchor))).toEqual([]);
});
