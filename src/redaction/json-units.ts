/**
 * The units of the body of a JSON string, from its spelling. Text that is not JSON is read to its
 * end too.
 */

/** In no class: a wrong spelling is no character. */
const NO_UNIT = 0xffff;
const LETTER_U = 0x75;

const SHORT: ReadonlyMap<string, number> = new Map(
  Object.entries({
    '"': '"',
    "\\": "\\",
    "/": "/",
    b: "\b",
    f: "\f",
    n: "\n",
    r: "\r",
    t: "\t",
  }).map(([letter, character]) => [letter, character.charCodeAt(0)]),
);

/**
 * The escape whose backslash is at `at`: the unit that it stands for, and the length of its
 * spelling.
 */
export function readEscape(
  text: string,
  at: number,
): { readonly unit: number; readonly length: number } {
  if (text.charCodeAt(at + 1) !== LETTER_U)
    return { unit: SHORT.get(text.charAt(at + 1)) ?? NO_UNIT, length: 2 };
  const digits = text.slice(at + 2, at + 6);
  if (!/^[0-9A-Fa-f]{4}$/.test(digits)) return { unit: NO_UNIT, length: 2 };
  return { unit: Number.parseInt(digits, 16), length: 6 };
}
