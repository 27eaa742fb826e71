/**
 * JSON whose numbers keep their spelling: one that is no exact double (1000000000000000001, 1.10)
 * is read as a SpelledNumber, which JSON.stringify prints as it came
 * (https://github.com/tc39/proposal-json-parse-with-source; Node 22, browsers since 2025; elsewhere
 * doubles). It is no object for `isObject` and for schemas.
 */
declare global {
  interface JSON {
    /** A value that JSON.stringify prints as this text. */
    rawJSON?(text: string): object;
  }
}

export class SpelledNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): unknown {
    return JSON.rawJSON?.(this.text);
  }

  toString(): string {
    return this.text;
  }
}

/** A number that may not be printed as it was spelled, or a text that looks like it. */
const SUSPECT = /(?:^|[:,[])\s*(-?(?:[\d.]{16}|\d+\.\d*0(?!\d)|[\d.]+[eE])[\d.eE+-]*|-0(?![\d.]))/g;

/** As JSON.parse, but for numbers that JSON.stringify would print otherwise. */
export function parseExact(text: string): unknown {
  return isExact(text) ? JSON.parse(text) : JSON.parse(text, asSpelled);
}

/** True: no number in the text changes when it is parsed and printed. */
export function isExact(text: string): boolean {
  if (JSON.rawJSON === undefined) return true;
  SUSPECT.lastIndex = 0;
  for (let found = SUSPECT.exec(text); found !== null; found = SUSPECT.exec(text)) {
    const number = found[1] ?? "";
    if (String(Number(number)) !== number) return false;
  }
  return true;
}

/** The context has no source for objects and lists. */
function asSpelled(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source } = context ?? {};
  const isChanged = typeof value === "number" && source !== undefined && String(value) !== source;
  return isChanged ? new SpelledNumber(source) : value;
}

/** A number that is read as a double after all: for fields that are numbers of the protocol. */
export function plainNumber(value: unknown): unknown {
  return value instanceof SpelledNumber ? Number(value.text) : value;
}
