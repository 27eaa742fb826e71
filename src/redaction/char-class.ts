/** The ASCII characters of a class, by their codes. */
export type CharClass = Uint8Array;

const ASCII = 128;

/** Parses the text between the brackets of a class; undefined when it is invalid. */
export function charClassOf(characters: string): CharClass | undefined {
  const units = unitsOf(characters);
  if (units === undefined) return undefined;
  const has = new Uint8Array(ASCII);
  for (let at = 0; at < units.length; at += 1) {
    const first = units[at];
    const last = units[at + 2];
    if (first === undefined) return undefined;
    const isRange = units[at + 1]?.code === DASH && !units[at + 1]?.isEscaped && last !== undefined;
    if (isRange && last.code < first.code) return undefined;
    has.fill(1, first.code, (isRange ? last.code : first.code) + 1);
    if (isRange) at += 2;
  }
  return units.length > 0 ? has : undefined;
}

const DASH = 0x2d;

interface Unit {
  readonly code: number;
  readonly isEscaped: boolean;
}

/** A backslash makes the next character literal. */
function unitsOf(characters: string): readonly Unit[] | undefined {
  const units: Unit[] = [];
  for (let at = 0; at < characters.length; at += 1) {
    const isEscaped = characters.charAt(at) === "\\";
    if (isEscaped) at += 1;
    const code = characters.charCodeAt(at);
    if (!(code < ASCII)) return undefined; // NaN when no character follows the backslash.
    units.push({ code, isEscaped });
  }
  return units;
}

export function isIn(has: CharClass, unit: number): boolean {
  return unit < ASCII && has[unit] === 1;
}
