/** docs/operations.md quotes what was measured, and links between pages lead to a file and a heading. */
import { existsSync, globSync, readFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, test } from "vitest";

const DOCS = fileURLToPath(new URL("../../docs", import.meta.url));
const text = (name: string): string => readFileSync(`${DOCS}/${name}`, "utf8");

function section(title: string): string {
  const [, body] = text("operations.md").split(new RegExp(`^## ${title}$`, "m"));
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

/** The anchors that GitHub gives the headings of a page. */
function anchorsOf(markdown: string): readonly string[] {
  const headings = markdown.replaceAll(/^```[^]*?^```/gm, "").matchAll(/^#{1,4} (.+)$/gm);
  return [...headings].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w -]/g, "")
      .replaceAll(" ", "-"),
  );
}

test("every link of the pages leads to a file and a heading", () => {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const paths = globSync(["*.md", "docs/**/*.md", "{clients,packages}/*/README.md"], { cwd: root });
  expect(paths.length).toBeGreaterThan(50);
  const lost = paths.flatMap((path) => {
    const url = pathToFileURL(`${root}/${path}`);
    const markdown = readFileSync(url, "utf8").replaceAll(/^```[^]*?^```/gm, "");
    const links = [...markdown.matchAll(/\]\((?!\w+:)([^)#\s]*)(?:#([^)]+))?\)/g)];
    return links.flatMap(([link, target = "", anchor]) => {
      const file = target === "" ? url : new URL(target, url);
      if (!existsSync(file)) return [`${path} ${link}`];
      if (anchor === undefined || !file.pathname.endsWith(".md")) return [];
      return anchorsOf(readFileSync(file, "utf8")).includes(anchor) ? [] : [`${path} ${link}`];
    });
  });
  expect(lost).toEqual([]);
});
