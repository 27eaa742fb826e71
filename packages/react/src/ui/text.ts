/** Text of a session, which may be hostile, made safe to look at; pure. */

/** Characters that are invisible or change the order of their neighbours. */
const UNSEEN =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

const PICTURES = 0x2400;

/**
 * Makes control characters visible: those of ASCII as their pictures (␀), others as their number
 * (‹U+202E›). Line breaks, tabs and joiners of letters and emoji stay.
 */
export function visible(text: string): string {
  return text.replace(UNSEEN, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(PICTURES + code);
    if (code === 0x7f) return "\u2421";
    return `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203a`;
  });
}

/** At most this many characters, never half of a pair. */
export function cut(text: string, charsMax: number): string {
  if (text.length <= charsMax) return text;
  const isHalf = /[\ud800-\udbff]/.test(text.charAt(charsMax - 1));
  return text.slice(0, isHalf ? charsMax - 1 : charsMax);
}
