/**
 * Pictures of the documents as SVG: boxes, arrows and words on a grid of pixels. A picture has a ground of
 * its own, so it can be read on any page, and follows the colours that its reader prefers.
 */

type Tone = "plain" | "accent" | "soft";
type Point = readonly [x: number, y: number];

export interface Box {
  readonly at: Point;
  readonly size: Point;
  readonly title?: string;
  /** Smaller lines below the title. */
  readonly lines?: readonly string[];
  readonly tone?: Tone;
}

export interface Arrow {
  /** The corners of its line, such as `20,55 178,55`. */
  readonly path: string;
  readonly label?: string;
  /** The middle of the label; default: above the middle of the line. */
  readonly labelAt?: Point;
  readonly isDashed?: boolean;
  readonly hasNoHead?: boolean;
}

export interface Words {
  readonly at: Point;
  readonly text: string;
  readonly tone?: Tone;
  readonly anchor?: "start" | "middle" | "end";
}

export interface Picture {
  readonly title: string;
  /** For readers who do not see it. */
  readonly description: string;
  readonly size: Point;
  readonly boxes?: readonly Box[];
  readonly arrows?: readonly Arrow[];
  readonly words?: readonly Words[];
}

const STYLE = `
    :root { --ground: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #818b98; --fill: #f6f8fa; --accent: #0550ae; --accent-fill: #ddf4ff; }
    @media (prefers-color-scheme: dark) {
      :root { --ground: #0d1117; --ink: #f0f6fc; --soft: #9198a1; --line: #656c76; --fill: #1a2029; --accent: #79c0ff; --accent-fill: #10294a; }
    }
    text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
    .title { font-weight: 600; }
    .line, .soft { fill: var(--soft); font-size: 12px; }
    .accent { fill: var(--accent); }
    rect { fill: var(--fill); stroke: var(--line); }
    rect.accent { fill: var(--accent-fill); stroke: var(--accent); }
    rect.soft { fill: none; stroke-dasharray: 4 4; }
    rect.ground { fill: var(--ground); stroke: none; }
    polyline { fill: none; stroke: var(--line); stroke-width: 1.5; }
    polyline.dashed { stroke-dasharray: 4 4; }
    marker path { fill: var(--line); }
    .label { fill: var(--soft); font-size: 12px; paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }`;

export function svgOf({ title, description, size, boxes, arrows, words }: Picture): string {
  const [width, height] = size;
  const parts = [
    ...(boxes ?? []).map(boxOf),
    ...(arrows ?? []).map(arrowOf),
    ...(words ?? []).map(wordsOf),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title description">
  <title id="title">${escaped(title)}</title>
  <desc id="description">${escaped(description)}</desc>
  <style>${STYLE}
  </style>
  <defs>
    <marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto-start-reverse">
      <path d="M0 0 8 4 0 8z" />
    </marker>
  </defs>
  <rect class="ground" width="${width}" height="${height}" rx="8" />
${parts.map((part) => `  ${part}`).join("\n")}
</svg>
`;
}

const LINE_HEIGHT = 17;

function boxOf({ at: [x, y], size: [w, h], title, lines = [], tone = "plain" }: Box): string {
  const texts = [
    ...(title === undefined ? [] : [{ text: title, kind: "title" }]),
    ...lines.map((text) => ({ text, kind: "line" })),
  ];
  const first = y + h / 2 - ((texts.length - 1) * LINE_HEIGHT) / 2 + 4.5;
  const said = texts.map(
    ({ text, kind }, index) =>
      `<text class="${kind}" x="${x + w / 2}" y="${first + index * LINE_HEIGHT}" text-anchor="middle">${escaped(text)}</text>`,
  );
  const rect = `<rect class="${tone}" x="${x}" y="${y}" width="${w}" height="${h}" rx="6" />`;
  return [rect, ...said].join("\n  ");
}

function arrowOf({ path, label, labelAt, isDashed = false, hasNoHead = false }: Arrow): string {
  const head = hasNoHead ? "" : ' marker-end="url(#head)"';
  const line = `<polyline${isDashed ? ' class="dashed"' : ""} points="${path}"${head} />`;
  if (label === undefined) return line;
  const [x, y] = labelAt ?? aboveMiddleOf(path);
  return `${line}\n  <text class="label" x="${x}" y="${y}" text-anchor="middle">${escaped(label)}</text>`;
}

function aboveMiddleOf(path: string): Point {
  const corners = path.split(" ").map((corner) => corner.split(",").map(Number));
  const [[fromX = 0, fromY = 0] = [], [toX = 0, toY = 0] = []] = [corners[0], corners.at(-1)];
  return [(fromX + toX) / 2, (fromY + toY) / 2 - 7];
}

function wordsOf({ at: [x, y], text, tone = "plain", anchor = "start" }: Words): string {
  return `<text class="${tone}" x="${x}" y="${y}" text-anchor="${anchor}">${escaped(text)}</text>`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
