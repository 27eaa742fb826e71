/** Where two lists differ: the longest list of members that both have in this order, and the rest. */

/** Neighbouring members that both lists have, or only one. */
export interface Part<T> {
  readonly in: "both" | "left" | "right";
  /** Empty in a part of the other list. */
  readonly left: readonly T[];
  readonly right: readonly T[];
}

interface Step {
  readonly in: Part<unknown>["in"];
  readonly count: number;
}

/** Cells of the table of a comparison, about 50 ms; longer lists differ as a whole in their middle. */
const CELLS_MAX = 4_000_000;

export function difference<T>(
  left: readonly T[],
  right: readonly T[],
  isSame: (one: T, other: T) => boolean = Object.is,
): readonly Part<T>[] {
  const shorter = Math.min(left.length, right.length);
  let head = 0;
  while (head < shorter && isSameAt(head, head)) head += 1;
  let tail = 0;
  while (tail < shorter - head && isSameAt(left.length - 1 - tail, right.length - 1 - tail))
    tail += 1;
  const rows = left.length - head - tail;
  const columns = right.length - head - tail;
  const middle =
    rows * columns > CELLS_MAX
      ? apart(rows, columns)
      : stepsOf({ rows, columns, isSame: (row, column) => isSameAt(head + row, head + column) });
  const steps: readonly Step[] = [
    { in: "both", count: head },
    ...middle,
    { in: "both", count: tail },
  ];
  return partsOf(left, right, steps);

  function isSameAt(row: number, column: number): boolean {
    const [one, other] = [left[row], right[column]];
    return one !== undefined && other !== undefined && isSame(one, other);
  }
}

function apart(left: number, right: number): readonly Step[] {
  return [
    { in: "left", count: left },
    { in: "right", count: right },
  ];
}

interface Middle {
  readonly rows: number;
  readonly columns: number;
  readonly isSame: (row: number, column: number) => boolean;
}

function stepsOf({ rows, columns, isSame }: Middle): readonly Step[] {
  const longest = longestFrom({ rows, columns, isSame });
  const steps: Step[] = [];
  let [row, column] = [0, 0];
  while (row < rows && column < columns) {
    const where = isSame(row, column)
      ? "both"
      : longest(row + 1, column) >= longest(row, column + 1)
        ? "left"
        : "right";
    steps.push({ in: where, count: 1 });
    if (where !== "right") row += 1;
    if (where !== "left") column += 1;
  }
  return [...steps, ...apart(rows - row, columns - column)];
}

/** The length of the longest common list from a place in both on. */
function longestFrom({ rows, columns, isSame }: Middle): (row: number, column: number) => number {
  const width = columns + 1;
  const table = new Uint32Array((rows + 1) * width);
  const at = (row: number, column: number): number => table[row * width + column] ?? 0;
  for (let row = rows - 1; row >= 0; row -= 1) {
    for (let column = columns - 1; column >= 0; column -= 1) {
      table[row * width + column] = isSame(row, column)
        ? at(row + 1, column + 1) + 1
        : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  return at;
}

/** Joins neighbours of one kind. */
function partsOf<T>(
  left: readonly T[],
  right: readonly T[],
  steps: readonly Step[],
): readonly Part<T>[] {
  const runs: { in: Step["in"]; count: number }[] = [];
  for (const { in: where, count } of steps) {
    const last = runs.at(-1);
    if (last?.in === where) last.count += count;
    else if (count > 0) runs.push({ in: where, count });
  }
  let [row, column] = [0, 0];
  return runs.map(({ in: where, count }) => {
    const rows = where === "right" ? 0 : count;
    const columns = where === "left" ? 0 : count;
    const part = {
      in: where,
      left: left.slice(row, row + rows),
      right: right.slice(column, column + columns),
    };
    row += rows;
    column += columns;
    return part;
  });
}

/** Words, and what stands between them; joined again they are the text. */
export function wordsOf(text: string): readonly string[] {
  return text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}
