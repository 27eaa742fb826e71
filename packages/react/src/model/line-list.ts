/**
 * All lines of a session in their order, dead ones too, in blocks. A block knows its last change, and
 * makes its view after that once: a moment costs little more than the blocks that change around it.
 */
import type { Item } from "./items.ts";
import type { Block, Line } from "./lines.ts";
import type { At } from "./versions.ts";

const LINES_MAX = 256;

export class LineList {
  readonly #linesMax: number;
  readonly #blocks: Block[] = [];

  constructor(linesMax = LINES_MAX) {
    this.#linesMax = linesMax;
  }

  get last(): Line | undefined {
    return this.#blocks.at(-1)?.lines.at(-1);
  }

  /** Behind the line `previous`; undefined: at the beginning. */
  insert(line: Line, previous: Line | undefined): void {
    const block = previous === undefined ? this.#blocks[0] : previous.block;
    if (block === undefined || (previous === this.last && block.lines.length >= this.#linesMax)) {
      this.#blocks.push(blockOf([line]));
      return;
    }
    const { lines } = block;
    const at = previous === undefined ? 0 : lines.lastIndexOf(previous) + 1;
    if (at === lines.length) lines.push(line);
    else lines.splice(at, 0, line);
    line.block = block;
    block.firstSeq = Math.min(block.firstSeq, line.born);
    this.touch(line, line.born);
    if (lines.length > 2 * this.#linesMax) this.#split(block);
  }

  /** Something that the line shows changes at this number. */
  touch({ block }: Line, seq: number): void {
    if (block === undefined) return;
    block.changedSeq = Math.max(block.changedSeq, seq);
    block.items = undefined;
  }

  /** `show` adds the items of a line that is alive. */
  itemsAt(at: At, show: (line: Line, into: Item[]) => void): readonly Item[] {
    const { seq, cutSeq } = at;
    const all: Item[] = [];
    for (const block of this.#blocks) {
      if (block.firstSeq > seq) continue;
      // Of a row that is cut, the block shows less than after its last change.
      const isOver = block.changedSeq <= seq && block.changedSeq !== cutSeq;
      const items = (isOver ? block.items : undefined) ?? shown(block, seq, show);
      if (isOver) block.items = items;
      for (const item of items) all.push(item);
    }
    return all;
  }

  *[Symbol.iterator](): Generator<Line, void, undefined> {
    for (const { lines } of this.#blocks) yield* lines;
  }

  #split(block: Block): void {
    const half = blockOf(block.lines.splice(this.#linesMax));
    half.changedSeq = block.changedSeq;
    this.#blocks.splice(this.#blocks.indexOf(block) + 1, 0, half);
  }
}

function blockOf(lines: Line[]): Block {
  const firstSeq = Math.min(...lines.map(({ born }) => born));
  const changedSeq = Math.max(...lines.map(({ born }) => born));
  const block = { lines, firstSeq, changedSeq, items: undefined };
  for (const line of lines) line.block = block;
  return block;
}

function shown(
  { lines }: Block,
  seq: number,
  show: (line: Line, into: Item[]) => void,
): readonly Item[] {
  const items: Item[] = [];
  for (const line of lines) if (line.isAliveAt(seq)) show(line, items);
  return items;
}
