/**
 * Texts of files and request bodies. A byte order mark is skipped at the beginning of a file or a
 * body (RFC 8259, section 8.1), and is a character like others anywhere else.
 */
const BYTE_ORDER_MARK = "\uFEFF";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Undefined when the bytes are not UTF-8. `isStart`: they begin a file or a body. */
export function utf8Of(
  bytes: Uint8Array,
  { isStart }: { readonly isStart: boolean },
): string | undefined {
  try {
    const text = decoder.decode(bytes);
    return isStart ? withoutMark(text) : text;
  } catch {
    return undefined;
  }
}

/** For the text of a whole file or body. */
export function withoutMark(text: string): string {
  return text.startsWith(BYTE_ORDER_MARK) ? text.slice(BYTE_ORDER_MARK.length) : text;
}
