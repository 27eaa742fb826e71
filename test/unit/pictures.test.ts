/** The pictures in docs are those that tools/pictures.ts describes, and documents show each with a text. */
import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { svgOf } from "../../tools/drawings.ts";
import { PICTURES } from "../../tools/pictures.ts";

const NAMES = Object.keys(PICTURES);

test.each(NAMES)("docs/pictures/%s.svg is the newest drawing (node tools/pictures.ts)", (name) => {
  const picture = PICTURES[name];
  if (picture === undefined) throw new Error(`there is no picture ${name}`);
  expect(readFileSync(`docs/pictures/${name}.svg`, "utf8")).toBe(svgOf(picture));
});

test("every picture is shown in a document, and every shown picture exists and has a text", () => {
  const shown = ["README.md", ...globSync("docs/*.md")].flatMap((path) => {
    const text = readFileSync(path, "utf8");
    return [...text.matchAll(/!\[([^\]]*)\]\(([^)]*pictures\/([^)]+))\)/g)].map(
      ([, alt = "", , file = ""]) => ({ alt, file }),
    );
  });
  const files = globSync("docs/pictures/*").map((path) => path.replace("docs/pictures/", ""));
  expect(files.length).toBeGreaterThanOrEqual(NAMES.length);
  expect(new Set(shown.map(({ file }) => file))).toEqual(new Set(files));
  expect(shown.filter(({ alt }) => alt.length < 20)).toEqual([]);
});
