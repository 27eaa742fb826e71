/**
 * Text of a session in a safe form for a terminal: characters that would move the cursor, ring a
 * bell, change colours or turn the direction of the line are spelled out. A writer of a session
 * must not control the terminal of its reader.
 */
export function visible(text: string): string {
  return text.replace(UNSAFE, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

// C0, DEL and C1; line and paragraph separators; embeddings, overrides and isolates of direction.
const UNSAFE = /[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]/gu;
